"""The ConfigMap from which the API reads the limits of tenants."""

from collections.abc import Mapping

from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.tenant_limits import LIMITS_CONFIG_MAP, TenantLimits, write_limit_table
from infra.objects.metadata import Json, build_metadata


def build_limits(all_tenants: TenantLimits, by_tenant: Mapping[str, TenantLimits]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(LIMITS_CONFIG_MAP, SYSTEM_NAMESPACE),
        "data": write_limit_table(all_tenants, by_tenant),
    }
