"""What one tenant may hold of what all tenants share: a ConfigMap, which the API reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.limits import LIMITS_CONFIG_MAP, TenantLimits, write_limit_table
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from infra.objects import build_metadata, declare, name_of


def build_limits(all_tenants: TenantLimits, by_tenant: Mapping[str, TenantLimits]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(LIMITS_CONFIG_MAP, SYSTEM_NAMESPACE),
        "data": write_limit_table(all_tenants, by_tenant),
    }


@dataclass(frozen=True)
class TenantLimitMapArgs:
    all_tenants: TenantLimits
    by_tenant: Mapping[str, TenantLimits]
    after: Sequence[pulumi.Resource]
    """The namespaces."""


class TenantLimitMap(pulumi.ComponentResource):
    def __init__(self, name: str, args: TenantLimitMapArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:TenantLimits", name, {}, opts)
        config_map = declare(build_limits(args.all_tenants, args.by_tenant), self, after=args.after)
        self.register_outputs({"configMap": name_of(config_map)})
