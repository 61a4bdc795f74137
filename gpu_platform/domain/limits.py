"""How many objects of each kind a tenant may have: the decision of the API, and the ResourceQuota behind it.

The API decides from what its caches show. The ResourceQuota in the tenant's namespace holds for all writers, and for
requests that arrive at the same moment at several API processes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.operations import OperationKind
from gpu_platform.domain.quantities import parse_quantity
from gpu_platform.domain.tenant_limits import TenantLimits

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
            limit, count = _parse_count(limited[plural]), _parse_count(used[plural])
            return ReachedLimit(name, limit, count, has_reserve=name == OPERATIONS)
    return None


def _parse_count(quantity: str) -> int:
    """Kubernetes writes 5000 as `5k`."""
    return int(parse_quantity(quantity))


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
