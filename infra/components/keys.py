"""The keys of the API, as far as the configuration holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra.declaring import declare, name_of
from infra.objects.keys import build_keys
from infra.sections import ApiKey


@dataclass(frozen=True)
class ApiKeysArgs:
    keys: Mapping[str, ApiKey]
    after: Sequence[pulumi.Resource]
    """The namespaces."""


class ApiKeys(pulumi.ComponentResource):
    def __init__(self, name: str, args: ApiKeysArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:ApiKeys", name, {}, opts)
        body = build_keys(args.keys)
        # A hash is no key, but it says who there is: as little of that as can be in states and previews.
        secret = declare({**body, "data": pulumi.Output.secret(body["data"])}, self, after=args.after)
        self.register_outputs({"secret": name_of(secret)})
