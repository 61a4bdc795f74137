"""Whose writes are whose: the reconciler's mutating requests in the audit log, given to units and to stock. Pure.

| write                                                              | belongs to |
| ------------------------------------------------------------------ | ---------- |
| the unit's policy, Service, Deployment, status, Events             | the unit   |
| its stock's objects, from the claim to the stock's deletion        | the unit   |
| the deletion of stock, however often it is sent                    | the unit   |
| stock before its claim: the object, its policy, Deployment, status, Events | the pool |
| the pool's status                                                  | the pool   |

A refused write counts like any other: the API server had the work. The pool itself deletes stock only when it
shrinks, and the pools here do not.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from tests.support.audit_log import RECONCILER_AGENT

Kind = tuple[str, str, int]
"""Verb, resource with subresource, and the API server's answer."""


@dataclass(frozen=True)
class WriteCounts:
    of_units: Counter[Kind]
    of_pools: Counter[Kind]


def count_writes(events: Iterable[Json], units: Collection[str]) -> WriteCounts:
    """From everybody's mutating requests: who is not the reconciler and patches a stock unit, claims it.

    A stock unit's name is used again after its deletion; so the order of the requests decides.
    """
    counts = WriteCounts(Counter(), Counter())
    claimed: set[str] = set()
    for event in sorted(events, key=lambda each: each["requestReceivedTimestamp"]):
        namespace, owner = owner_of(event["objectRef"])
        in_stock = namespace == names.STOCK_NAMESPACE
        if not is_ours(event):
            if in_stock and is_claim(event):
                claimed.add(owner)
        elif in_stock and is_consumption(event):
            counts.of_units[kind_of(event)] += 1
            claimed.discard(owner)
        elif owner in (claimed if in_stock else units):
            counts.of_units[kind_of(event)] += 1
        else:
            counts.of_pools[kind_of(event)] += 1
    return counts


def owner_of(reference: Json) -> tuple[str, str]:
    """Namespace and name of the unit or pool that this write is about."""
    name: str = reference.get("name", "")
    match reference["resource"]:
        case "events":
            # An Event is named after its object, with a hash behind a dot; a unit's name has no dot.
            name = name.partition(".")[0]
        case "deployments" | "services" | "networkpolicies":
            name = name.removeprefix(names.child_name(""))
    return reference.get("namespace", ""), name


def is_ours(event: Json) -> bool:
    return bool(event.get("userAgent", "").startswith(RECONCILER_AGENT))


def is_claim(event: Json) -> bool:
    return event["verb"] == "patch" and event["objectRef"]["resource"] == "gpuunits" and _answer(event) == 200


def is_consumption(event: Json) -> bool:
    return bool(event["verb"] == "delete" and event["objectRef"]["resource"] == "gpuunits")


def kind_of(event: Json) -> Kind:
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return event["verb"], resource, _answer(event)


def describe(counts: Counter[Kind], divisor: int) -> str:
    """One line: how often each kind of write was sent, per unit."""
    return ", ".join(
        f"{verb} {resource}{f' ({answer})' if answer >= 400 else ''} {number / divisor:.2f}"
        for (verb, resource, answer), number in counts.most_common()
    )


def _answer(event: Json) -> int:
    return int(event.get("responseStatus", {}).get("code", 0))
