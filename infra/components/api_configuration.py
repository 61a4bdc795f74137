"""What the API reads while it runs: a Secret with the hashes of its keys, and a ConfigMap with the tenants' limits."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pydantic import ConfigDict

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.tenant_limits import LIMITS_CONFIG_MAP, TenantLimits, write_limit_table
from gpu_platform.domain.tenants import KEYS_SECRET, KeyRecord, find_undeclared
from infra.component import Component, build_object, name_of


class ApiKey(KeyRecord):
    """What the platform knows of a key: a hash of its secret. The key itself has no place in a configuration."""

    model_config = ConfigDict(extra="forbid")


def build_keys(keys: Mapping[str, ApiKey]) -> Json:
    records = {key_id: json.dumps(record.to_json(), sort_keys=True) for key_id, record in keys.items()}
    return build_object(
        "Secret",
        KEYS_SECRET,
        SYSTEM_NAMESPACE,
        type="Opaque",
        data={key_id: base64.b64encode(record.encode()).decode() for key_id, record in records.items()},
    )


def build_limits(all_tenants: TenantLimits, by_tenant: Mapping[str, TenantLimits]) -> Json:
    return build_object(
        "ConfigMap", LIMITS_CONFIG_MAP, SYSTEM_NAMESPACE, data=write_limit_table(all_tenants, by_tenant)
    )


@dataclass(frozen=True)
class ApiKeysArgs:
    keys: Mapping[str, ApiKey]


class ApiKeys(Component):
    def __init__(self, name: str, args: ApiKeysArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("ApiKeys", name, opts)
        if undeclared := find_undeclared(args.keys):
            pulumi.log.warn(
                f"apiKeys: {', '.join(undeclared)} have the roles operator or admin and do not say that they are "
                "platform keys; they lose these roles with the next release: write platform: true beside their roles, "
                "or remove operator and admin",
                self,
            )
        body = build_keys(args.keys)
        # A hash is no key, but it says who there is: as little of that as can be in states and previews.
        self.secret = name_of(self.declare({**body, "data": pulumi.Output.secret(body["data"])}))
        self.register_outputs({"secret": self.secret})


@dataclass(frozen=True)
class TenantLimitMapArgs:
    all_tenants: TenantLimits
    by_tenant: Mapping[str, TenantLimits]


class TenantLimitMap(Component):
    def __init__(self, name: str, args: TenantLimitMapArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("TenantLimits", name, opts)
        self.config_map = name_of(self.declare(build_limits(args.all_tenants, args.by_tenant)))
        self.register_outputs({"configMap": self.config_map})
