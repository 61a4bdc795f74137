"""The keys of the API, as far as the configuration holds them: a Secret of hashes, which the API reads."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.tenants import KEYS_SECRET, find_undeclared
from infra.objects import build_metadata, declare, name_of
from infra.sections import ApiKey


def build_keys(keys: Mapping[str, ApiKey]) -> Json:
    records = {key_id: json.dumps(record.to_json(), sort_keys=True) for key_id, record in keys.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": build_metadata(KEYS_SECRET, SYSTEM_NAMESPACE),
        "type": "Opaque",
        "data": {key_id: base64.b64encode(record.encode()).decode() for key_id, record in records.items()},
    }


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
