"""The keys of the API, as far as the configuration holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from gpu_platform.domain.api_keys import find_undeclared
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
        if undeclared := find_undeclared(args.keys):
            pulumi.log.warn(
                f"apiKeys: {', '.join(undeclared)} have the roles operator or admin and do not say that they are "
                "platform keys; they lose these roles with the next release: write platform: true beside their roles, "
                "or remove operator and admin",
                self,
            )
        body = build_keys(args.keys)
        # A hash is no key, but it says who there is: as little of that as can be in states and previews.
        secret = declare({**body, "data": pulumi.Output.secret(body["data"])}, self, after=args.after)
        self.register_outputs({"secret": name_of(secret)})
