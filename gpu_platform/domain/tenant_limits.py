"""The most that one tenant may hold of what all tenants share: the limits, the decision of the API about numbers of
objects, and the ResourceQuota behind it.

The API has default limits in its settings. The bootstrap's stack sets others, for all tenants or for one, in a
ConfigMap that the API reads every few seconds:

| entry of the ConfigMap | its value, as JSON                                        |
| ---------------------- | --------------------------------------------------------- |
| `_all`                 | the limits that differ from the API's own, for all tenants |
| a tenant's name        | the limits that differ from `_all`, for this tenant       |

The API decides about objects from what its caches show. The ResourceQuota in the tenant's namespace holds for all
writers, and for requests that arrive at the same moment at several API processes.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.operations import OperationKind
from gpu_platform.domain.quantities import parse_quantity
from gpu_platform.domain.value import Value

LIMITS_CONFIG_MAP = "gpu-platform-tenant-limits"
"""In the system namespace."""

ALL_TENANTS = "_all"
"""No tenant's name has an underscore."""

Count = Annotated[int, Field(ge=0)]

QUOTA = "platform-object-counts"
"""The ResourceQuota in each tenant's namespace."""

UNITS, STORAGES, FUNCTIONS, OPERATIONS = "units", "storages", "functions", "operations"

PLURALS = {UNITS: "gpuunits", STORAGES: "gpustorages", FUNCTIONS: "gpufunctions", OPERATIONS: "operations"}
"""The resource in Kubernetes that each limit counts."""

MADE = {
    OperationKind.CREATE_UNIT: UNITS,
    OperationKind.CREATE_STORAGE: STORAGES,
    OperationKind.CREATE_FUNCTION: FUNCTIONS,
}

EXEMPT = (
    OperationKind.DELETE_UNIT,
    OperationKind.DELETE_STORAGE,
    OperationKind.DELETE_FUNCTION,
    # Operators' requests: no tenant's namespace has them.
    OperationKind.DELETE_STOCK_POOL,
    OperationKind.SEED_STOCK_UNITS,
    OperationKind.CREATE_STOCK_POOL,
)

_EXCEEDED = re.compile(r"exceeded quota: .*?, requested: .*?, used: (?P<used>.*?), limited: (?P<limited>.*)")
_COUNT = re.compile(rf"count/(?P<plural>\w+)\.{re.escape(GROUP)}=(?P<count>[^,]+)")
_UNKNOWN = "status unknown for quota: "


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
    for entry, text in data.items():
        try:
            found[entry] = TenantLimits.model_validate_json(text)
        except ValidationError:
            problems.append(entry)
    all_tenants = defaults.override(found.pop(ALL_TENANTS, TenantLimits()))
    return TenantLimitTable(all_tenants, found), tuple(problems)


def write_limit_table(all_tenants: TenantLimits, by_tenant: Mapping[str, TenantLimits]) -> dict[str, str]:
    """Returns the ConfigMap's data. Only limits that were set are in it, so that the rest stays the API's own."""
    entries = {ALL_TENANTS: all_tenants, **by_tenant}
    return {
        entry: json.dumps(limits.model_dump(mode="json", by_alias=True, exclude_unset=True), sort_keys=True)
        for entry, limits in entries.items()
        if limits.model_fields_set
    }


@dataclass(frozen=True)
class ReachedLimit:
    name: str
    """As in `TenantLimits`."""

    limit: int
    used: int
    has_reserve: bool = False
    """Whether `limit` is that of the ResourceQuota, which has a reserve for deletions."""


def find_reached(kind: OperationKind, limits: TenantLimits, used: Mapping[str, int]) -> ReachedLimit | None:
    """Decides whether a tenant that has `used` objects may make a request of this kind. Rows from top to bottom.

    | request                              | units, storages or functions | operations   | decision            |
    | ------------------------------------ | ---------------------------- | ------------ | ------------------- |
    | deletes an object; a job of an operator | any                       | any          | None                |
    | creates a unit, storage or function  | the limit of its kind, or more | any        | that limit          |
    | creates one; starts or previews a unit; recovers a storage | any    | the limit, or more | `operations`  |
    | any other                            | fewer                        | fewer        | None                |

    Deletions are exempt, because a tenant at its limit must be able to get below it.
    """
    if kind in EXEMPT:
        return None
    for name in filter(None, (MADE.get(kind), OPERATIONS)):
        limit = getattr(limits, name)
        if used[name] >= limit:
            return ReachedLimit(name, limit, used[name])
    return None


def build_hard(limits: TenantLimits) -> dict[str, str]:
    """Returns `spec.hard` of the ResourceQuota.

    Of Operations it allows as many more as the tenant may have objects: each can then be deleted on record also by a
    tenant that has reached the limit of the API.
    """
    allowed = {name: getattr(limits, name) for name in PLURALS}
    allowed[OPERATIONS] += allowed[UNITS] + allowed[STORAGES] + allowed[FUNCTIONS]
    return {f"count/{plural}.{GROUP}": str(allowed[name]) for name, plural in PLURALS.items()}


def parse_exceeded(message: str) -> ReachedLimit | None:
    """Returns the limit that the API server names in a refused creation; None where a quota of something else did."""
    found = _EXCEEDED.search(message)
    if found is None:
        return None
    used, limited = (dict(_COUNT.findall(found[part])) for part in ("used", "limited"))
    for name, plural in PLURALS.items():
        if plural in used and plural in limited:
            # Kubernetes writes 5000 as `5k`.
            limit, count = int(parse_quantity(limited[plural])), int(parse_quantity(used[plural]))
            return ReachedLimit(name, limit, count, has_reserve=name == OPERATIONS)
    return None


def is_uncounted(message: str) -> bool:
    """Returns whether a creation was refused because the quota controller has not counted the objects yet.

    It looks for new kinds every 30 s, and counts them with its next full pass, every five minutes.
    """
    return _UNKNOWN in message


def is_counted(quota: dict[str, Any]) -> bool:
    """Returns whether the quota controller has counted all that this ResourceQuota limits."""
    status = quota.get("status") or {}
    return set(quota["spec"]["hard"]) <= set(status.get("used") or ()) and status.get("hard") == quota["spec"]["hard"]


def describe_reached(reached: ReachedLimit) -> str:
    reserve = ", with the reserve for deletions" if reached.has_reserve else ""
    have = f"the tenant has {reached.used} {reached.name}, and its limit {reached.name} is {reached.limit}{reserve}"
    match reached.name:
        case "units":
            return f"{have}; workers of functions count, too: delete units, or ask an operator for more"
        case "operations":
            return (
                f"{have}; they are the records of accepted requests, kept for 7 days after their object is deleted: "
                "wait until some expire, or ask an operator for more"
            )
    return f"{have}; delete {reached.name}, or ask an operator for more"
