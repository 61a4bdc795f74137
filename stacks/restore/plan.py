"""What a restore does about one stack: what its state says, the step that follows, and what became of it. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from fnmatch import fnmatchcase

from gpu_platform.domain import names
from gpu_platform.domain.drift import find_differences
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.stacks import (
    SPECS,
    Intent,
    StackAddress,
    StackKind,
    StackRecord,
    as_accepted,
    intent_of,
    is_recorded,
)
from gpu_platform.domain.units import accepted_text
from providers.cluster.resources import GPU_FUNCTION, GPU_STORAGE, GPU_UNIT, STOCK_POOL

TOKENS = {
    StackKind.GPU_UNIT: GPU_UNIT,
    StackKind.GPU_STORAGE: GPU_STORAGE,
    StackKind.GPU_FUNCTION: GPU_FUNCTION,
    StackKind.STOCK_POOL: STOCK_POOL,
}

STAGES = (StackKind.STOCK_POOL, StackKind.GPU_STORAGE, StackKind.GPU_FUNCTION, StackKind.GPU_UNIT)
"""In this order. Each may need what an earlier one makes: units take the place of stock and mount storages, and of a
function that is missing, one is made after a unit which takes its calls."""


@dataclass(frozen=True)
class Kept:
    """Enough to make the object again. The uid is the one that it had."""

    intent: Intent
    at: datetime | None
    """When Pulumi last wrote the state."""

    @property
    def spec_name(self) -> str | None:
        """The GPUSpec that it needs; None for what needs none, such as a storage."""
        name: str | None = self.intent.spec.get("specName")
        return name

    @property
    def runs(self) -> bool:
        """Whether it is a unit that needs GPUs, which stock holds."""
        return self.intent.address.kind is StackKind.GPU_UNIT and bool(self.intent.spec.get("running", True))


@dataclass(frozen=True)
class NotKept:
    reason: str
    is_empty: bool = False
    """Pulumi began, and recorded nothing: there is nothing to be missed."""


def parse_checkpoint(address: StackAddress, state: Json | None) -> Kept | NotKept:
    try:
        latest = (state or {}).get("checkpoint", {}).get("latest") or {}
        found = [each for each in latest.get("resources") or () if each["type"] == TOKENS[address.kind]]
        # Of a replacement that was never finished, the old one is marked.
        resource = next((each for each in found if not each.get("delete")), None)
        if resource is None:
            return NotKept("nothing was recorded in it", is_empty=True)
        return _parse_resource(address, resource, _time_of(latest))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return NotKept(f"its state cannot be read: {' '.join(str(error).split())}")


def find_salt(state: Json | None) -> str | None:
    """With which the passphrase is tried; None where the secrets are not under a passphrase."""
    try:
        keeper = (state or {})["checkpoint"]["latest"]["secrets_providers"]
        return str(keeper["state"]["salt"]) if keeper["type"] == "passphrase" else None
    except (AttributeError, KeyError, TypeError):
        return None


def _parse_resource(address: StackAddress, resource: Json, at: datetime | None) -> Kept | NotKept:
    inputs, outputs = resource["inputs"], resource.get("outputs") or {}
    if (tenant := inputs.get("tenant", address.tenant), inputs["name"]) != (address.tenant, address.name):
        return NotKept(f"its state is about {tenant}.{inputs['name']}, which has another stack")
    spec = SPECS[address.kind].model_validate(inputs["spec"])
    return Kept(
        Intent(
            address=address,
            uid=str(outputs.get("uid") or ""),
            accepted_spec=accepted_text(spec),
            operation_id=str(inputs.get("operationID") or ""),
            request_hash=str(inputs.get("requestHash") or ""),
        ),
        at,
    )


def _time_of(latest: Json) -> datetime | None:
    try:
        return datetime.fromisoformat(latest["manifest"]["time"])
    except (KeyError, TypeError, ValueError):
        return None


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


class Result(Enum):
    RESTORED = "restored"
    THERE = "already there"
    LEFT = "left alone"
    EMPTY = "empty"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


RESULTS = {
    Action.NOTHING: Result.THERE,
    Action.LEAVE: Result.LEFT,
    Action.SKIP: Result.EMPTY,
    Action.REFUSE: Result.FAILED,
}


@dataclass(frozen=True)
class Outcome:
    address: StackAddress
    result: Result
    reason: str = ""
    is_without_stock: bool = False
    """A running unit that was made without a claim: it gets its GPUs when some are free."""

    def to_json(self) -> Json:
        return {
            "stack": self.address.full_name,
            "result": self.result.value,
            "reason": self.reason or None,
            "withoutStock": self.is_without_stock,
        }


def outcome_of(address: StackAddress, step: Step) -> Outcome:
    """Of a step for which Pulumi is not run."""
    return Outcome(address, RESULTS[step.action], step.reason)


def count_results(outcomes: Iterable[Outcome]) -> dict[Result, int]:
    """Those that there are, in the order in which they are told."""
    counted = Counter(outcome.result for outcome in outcomes)
    return {result: counted[result] for result in Result if counted[result]}
