"""What a restore does about one stack. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.stack_plan import find_differences
from gpu_platform.domain.stack_records import StackRecord, is_recorded
from gpu_platform.domain.stacks import Intent, StackAddress, StackKind, as_accepted, intent_of
from stacks.restore.checkpoints import Kept, NotKept

Json = dict[str, Any]

STAGES = (StackKind.STOCK_POOL, StackKind.GPU_STORAGE, StackKind.GPU_FUNCTION, StackKind.GPU_UNIT)
"""In this order. Each may need what an earlier one makes: units take the place of stock and mount storages, and of a
function that is missing, one is made after a unit which takes its calls."""


class Action(Enum):
    NOTHING = "nothing: it is there"
    MAKE = "make it"
    ADOPT = "take it over"
    LEAVE = "leave it alone"
    SKIP = "nothing: the stack is empty"
    REFUSE = "cannot be made"


RUNS = (Action.MAKE, Action.ADOPT)
"""Those that need Pulumi."""


@dataclass(frozen=True)
class Observed:
    kept: Kept | NotKept
    item: Json | None
    """The custom resource that has the name now."""

    record: StackRecord | None
    """What the index of stacks says."""

    is_delete_asked: bool = False
    """Somebody asked for the end of the object that the state, the index or the cluster knows."""

    is_in_ledger: bool = False
    """There is an Operation with the name of the one that accepted the object."""

    has_namespace: bool = True
    has_spec: bool = True
    """Whether the catalogue has its GPUSpec."""


@dataclass(frozen=True)
class Step:
    action: Action
    reason: str = ""


def plan_restore(observed: Observed) -> Step:
    """Rows from top to bottom.

    | state            | object                               | end asked for | besides                             | action  |
    | ---------------- | ------------------------------------ | ------------- | ----------------------------------- | ------- |
    | of nothing       | any                                  | any           |                                     | SKIP    |
    | unreadable       | any                                  | any           |                                     | REFUSE  |
    | there            | any                                  | yes           |                                     | LEAVE   |
    | there            | being deleted                        | no            |                                     | LEAVE   |
    | there            | another stack's                      | no            |                                     | LEAVE   |
    | there            | nobody accepted it                   | no            |                                     | LEAVE   |
    | there            | accepted otherwise                   | no            |                                     | LEAVE   |
    | there            | as accepted                          | no            | state, index and ledger know it     | NOTHING |
    | there            | as accepted                          | no            | one of them does not                | ADOPT   |
    | there            | none                                 | no            | its namespace is missing            | REFUSE  |
    | there            | none                                 | no            | its GPUSpec is missing              | REFUSE  |
    | there            | none                                 | no            |                                     | MAKE    |

    ADOPT is what a restore that was killed leaves behind: the object was made, and not all of its records were written.
    """
    kept, item = observed.kept, observed.item
    if isinstance(kept, NotKept):
        return Step(Action.SKIP if kept.is_empty else Action.REFUSE, kept.reason)
    if observed.is_delete_asked:
        return Step(Action.LEAVE, "its deletion was asked for; the stack worker removes the stack")
    if item is not None:
        return _plan_with_object(kept.intent, item, observed)
    namespace = kept.intent.address.namespace
    if not observed.has_namespace:
        return Step(
            Action.REFUSE,
            f"there is no namespace {namespace}: declare the tenant in `tenants`, then `gpu-platform bootstrap up`, then restore again",
        )
    if not observed.has_spec:
        return Step(
            Action.REFUSE,
            f"there is no GPUSpec {kept.spec_name}: declare it in `gpuSpecs`, then `gpu-platform bootstrap up`, then restore again",
        )
    return Step(Action.MAKE)


def _plan_with_object(wanted: Intent, item: Json, observed: Observed) -> Step:
    if "deletionTimestamp" in item["metadata"]:
        return Step(Action.LEAVE, "it is being deleted")
    if owner := annotations_of(item).get(names.ANNOTATION_OWNER_STACK):
        return Step(Action.LEAVE, f"the object of that name belongs to the Pulumi stack {owner}")
    intent = intent_of(item)
    if intent is None:
        return Step(Action.LEAVE, "the object of that name was made by hand, or its accepted spec cannot be read")
    if find_differences(as_accepted(item), wanted):
        return Step(Action.LEAVE, "the cluster has it with another accepted spec; the stack worker records that one")
    is_known = wanted.uid == intent.uid and is_recorded(observed.record, intent)
    # Of an object that no request made, no ledger knows.
    is_settled = observed.is_in_ledger or not (wanted.operation_id and wanted.request_hash)
    return Step(Action.NOTHING if is_known and is_settled else Action.ADOPT)


def choose(addresses: Iterable[StackAddress], patterns: Iterable[str]) -> tuple[StackAddress, ...]:
    """Those that fit one of the patterns (`gpu-unit/default.web`, `gpu-unit/*`), in the order of the stages. Without
    patterns all."""
    patterns = tuple(patterns)
    chosen = [
        address
        for address in addresses
        if not patterns or any(fnmatchcase(address.full_name, pattern) for pattern in patterns)
    ]
    return tuple(sorted(chosen, key=lambda address: (STAGES.index(address.kind), address.full_name)))
