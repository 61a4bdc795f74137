"""The most that one tenant may hold of what all tenants share.

The API has defaults in its settings. The bootstrap's stack sets others, for all tenants or for one, in a ConfigMap that
the API reads every few seconds:

| entry of the ConfigMap | its value, as JSON                                        |
| ---------------------- | --------------------------------------------------------- |
| `_all`                 | the limits that differ from the API's own, for all tenants |
| a tenant's name        | the limits that differ from `_all`, for this tenant       |
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from gpu_platform.domain.value import Value

LIMITS_CONFIG_MAP = "gpu-platform-tenant-limits"
"""In the system namespace."""

ALL_TENANTS = "_all"
"""No tenant's name has an underscore."""

Count = Annotated[int, Field(ge=0)]


class TenantLimits(Value):
    model_config = ConfigDict(extra="forbid")

    units: Count = 5_000
    storages: Count = 2_000
    functions: Count = 500
    operations: Count = 20_000
    """Records of accepted requests. They are kept for seven days after their object is gone."""

    previews: Count = 20
    """Waiting or running."""

    invocation_records: Count = 200_000
    invocation_bytes: Count = 512 << 20
    """Of payloads and results that are kept beside the records: an eighth of their stream."""

    requests_per_second: Annotated[int, Field(ge=1)] = 1_000
    """Of all of the tenant's keys together, per API process; twice as many at once after a pause."""

    write_bytes_per_second: Annotated[int, Field(ge=1)] = 512 << 10
    """Of objects that the tenant's requests make Kubernetes store, per API process; 32 times as many at once after a
    pause."""

    def override(self, other: "TenantLimits") -> "TenantLimits":
        """Returns these limits with the ones that `other` sets."""
        return self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set})


class TenantLimitTable:
    """The limits of every tenant."""

    def __init__(self, all_tenants: TenantLimits, by_tenant: Mapping[str, TenantLimits] | None = None) -> None:
        self._all_tenants = all_tenants
        self._by_tenant = dict(by_tenant or {})

    def of(self, tenant: str) -> TenantLimits:
        own = self._by_tenant.get(tenant)
        return self._all_tenants.override(own) if own else self._all_tenants


def read_limit_table(defaults: TenantLimits, data: Mapping[str, str]) -> tuple[TenantLimitTable, tuple[str, ...]]:
    """Returns the table, and the entries that cannot be read; those change nothing."""
    found, problems = {}, []
    for entry, limits in _read_entries(data):
        if limits is None:
            problems.append(entry)
        else:
            found[entry] = limits
    all_tenants = defaults.override(found.pop(ALL_TENANTS, TenantLimits()))
    return TenantLimitTable(all_tenants, found), tuple(problems)


def write_limit_table(all_tenants: TenantLimits, by_tenant: Mapping[str, TenantLimits]) -> dict[str, str]:
    """Returns the ConfigMap's data. Only limits that were set are in it, so that the rest stays the API's own."""
    entries = {ALL_TENANTS: all_tenants, **by_tenant}
    return {entry: _dump(limits) for entry, limits in entries.items() if limits.model_fields_set}


def _dump(limits: TenantLimits) -> str:
    return json.dumps(limits.model_dump(mode="json", by_alias=True, exclude_unset=True), sort_keys=True)


def _read_entries(data: Mapping[str, str]) -> Iterator[tuple[str, TenantLimits | None]]:
    for entry, text in data.items():
        try:
            yield entry, TenantLimits.model_validate_json(text)
        except ValidationError:
            yield entry, None
