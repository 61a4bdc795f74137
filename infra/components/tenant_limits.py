"""What one tenant may hold of what all tenants share, for the API to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from gpu_platform.domain.tenant_limits import TenantLimits
from infra.declaring import declare, name_of
from infra.objects.tenant_limits import build_limits


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
