"""Drift: which objects differ from their records and since when this process knows, and the report of it for operators.

Fed by the caches, one change at a time. The report is what is in memory, and one read of the ledger for each object
that is deleted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from gpu_platform.api_models.stacks import CorrectionView, DriftReport, DriftView, FieldDrift
from gpu_platform.domain import names
from gpu_platform.domain.drift import Difference, find_differences
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.stack_plan import Action, Records, plan_stack
from gpu_platform.domain.stacks import StackAddress, StackKind, StackRecord, address_of, intent_of, parse_record
from gpu_platform.store.stack_leases import look
from platform_api.cluster import Cluster
from platform_api.kube_health import BoundedClient

log = logging.getLogger(__name__)
KEPT_CORRECTIONS = 100

EXPECTED = (Action.NOTHING, Action.WAIT)
"""Nothing is wrong with these: what is being deleted differs from its records because somebody asked for it."""

DOING = {
    Action.NOTHING: "nothing: it is gone, nobody asked for its end, and no record says that it was accepted. "
    "`gpu-platform restore --only {stack}` makes it again",
    Action.WAIT: "waiting until the object is gone",
    Action.DELETE: "the reconciler deletes the object",
    Action.REVERT: "the reconciler puts the accepted spec back",
    Action.RECORD: "the stack worker records the object",
    Action.PUT_BACK: "the stack worker makes the object again",
    Action.REMOVE: "the stack worker removes the stack",
}

LOOKS_AT_ONCE = 8


@dataclass(frozen=True)
class Drift:
    """One object that differs."""

    address: StackAddress
    action: Action
    since: datetime
    differences: tuple[Difference, ...] = ()
    accepted_spec: str | None = None
    """The accepted spec that the differences are about."""

    lost: str | None = None
    """The operation that made it, when the object itself is gone. Made again, it bears the same mark; another object
    of its name does not."""


class DriftTracker:
    def __init__(self, cluster: Cluster, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._now = now
        self._differing: dict[StackAddress, Drift] = {}
        self._corrections: deque[CorrectionView] = deque(maxlen=KEPT_CORRECTIONS)
        self._objects = {
            StackKind.GPU_UNIT: cluster.units,
            StackKind.GPU_STORAGE: cluster.storages,
            StackKind.GPU_FUNCTION: cluster.functions,
            StackKind.STOCK_POOL: cluster.pools,
        }
        for cache in self._objects.values():
            cache.on_change(self._take_object)
        cluster.stacks.on_change(self._take_entry)

    def list_drift(self) -> tuple[Drift, ...]:
        """What differs longest comes first."""
        return tuple(sorted(self._differing.values(), key=lambda drift: (drift.since, drift.address.full_name)))

    def list_corrections(self) -> tuple[CorrectionView, ...]:
        """Drift that is over, because what was accepted is true again: the last ones, newest first."""
        return tuple(reversed(self._corrections))

    def find_record(self, address: StackAddress) -> StackRecord | None:
        return parse_record(self._cluster.stacks.get(names.SYSTEM_NAMESPACE, address.lease))

    def _take_object(self, old: Json | None, new: Json | None) -> None:
        # A change of the status is none of what was accepted.
        if old is None or new is None or _is_other(old, new):
            self._look(address for each in (old, new) if each is not None and (address := address_of(each)))

    def _take_entry(self, old: Json | None, new: Json | None) -> None:
        if old is None or new is None or _is_other(old, new):
            self._look(record.address for each in (old, new) if (record := parse_record(each)))

    def _look(self, addresses: Iterable[StackAddress]) -> None:
        try:
            for address in set(addresses):
                self._judge(address)
        except Exception:
            # One strange object must not stop the cache from following all the others.
            log.exception("drift.unreadable")

    def _judge(self, address: StackAddress) -> None:
        item = self._objects[address.kind].get(address.namespace, address.name)
        record = self.find_record(address)
        action = plan_stack(Records(item, record, is_accepted=True))
        known = self._differing.pop(address, None)
        if action not in EXPECTED:
            drift = replace(known or Drift(address, action, self._now()), action=action)
            self._differing[address] = _explained(drift, item, record)
        elif known is not None and item is not None and self._is_complete and is_corrected(known, item):
            self._corrections.append(view_correction(known, self._now()))

    @property
    def _is_complete(self) -> bool:
        """While the first lists come in, whatever is not listed yet only seems to be lost."""
        return all(cache.is_synced for cache in (*self._objects.values(), self._cluster.stacks))


def _explained(drift: Drift, item: Json | None, record: StackRecord | None) -> Drift:
    """What was wrong stays said until all is well: what follows is how it is put right."""
    if drift.action is Action.PUT_BACK and record is not None and record.recorded is not None:
        return replace(drift, lost=record.recorded.operation_id)
    intent = intent_of(item) if item is not None and drift.action is Action.REVERT else None
    if item is not None and intent is not None:
        return replace(drift, differences=find_differences(item, intent), accepted_spec=intent.accepted_spec)
    return drift


def is_corrected(drift: Drift, item: Json) -> bool:
    """Whether an object that no longer differs was put back.

    | object                                  | drift                          | corrected |
    | --------------------------------------- | ------------------------------ | --------- |
    | is being deleted                        | any                            | no        |
    | has the accepted spec that it had       | fields differed                | yes       |
    | has another one: a PUT accepted it      | fields differed                | no        |
    | carries the mark of the one that is gone | the object was gone            | yes       |
    | any other                               | only its stack was not recorded | no       |
    """
    annotations = annotations_of(item)
    if "deletionTimestamp" in item["metadata"]:
        return False
    if drift.differences:
        return annotations.get(names.ANNOTATION_ACCEPTED_SPEC) == drift.accepted_spec
    return drift.lost == annotations.get(names.ANNOTATION_OPERATION_ID, "")


def _is_other(old: Json, new: Json) -> bool:
    fields = ("uid", "generation", "annotations", "deletionTimestamp")
    return any(old["metadata"].get(field) != new["metadata"].get(field) for field in fields)


def view_drift(drift: Drift, action: Action, record: StackRecord | None) -> DriftView:
    address = drift.address
    return DriftView(
        stack=address.full_name,
        kind=address.kind.value,
        tenant=address.tenant,
        name=address.name,
        since=drift.since,
        action=action.name.lower(),
        doing=DOING[action].format(stack=address.full_name),
        differences=_fields_of(drift.differences),
        error=record.error if record else None,
        failures=record.failures if record else 0,
    )


def view_correction(drift: Drift, corrected_at: datetime) -> CorrectionView:
    return CorrectionView(
        stack=drift.address.full_name,
        since=drift.since,
        corrected_at=corrected_at,
        differences=_fields_of(drift.differences),
    )


def _fields_of(differences: tuple[Difference, ...]) -> tuple[FieldDrift, ...]:
    return tuple(FieldDrift(field=each.field, accepted=each.accepted, found=each.found) for each in differences)


async def build_report(client: BoundedClient, tracker: DriftTracker, limit: int) -> DriftReport:
    found = tracker.list_drift()
    turn = asyncio.Semaphore(LOOKS_AT_ONCE)
    # Not a group of tasks, whose errors come as a group too: the first one says why there is no answer.
    views = await asyncio.gather(*(_view(client, tracker, drift, turn) for drift in found[:limit]))
    return DriftReport(
        items=tuple(views),
        total=len(found),
        corrected=tracker.list_corrections(),
    )


async def _view(client: BoundedClient, tracker: DriftTracker, drift: Drift, turn: asyncio.Semaphore) -> DriftView:
    record = tracker.find_record(drift.address)
    action = drift.action
    if action is Action.PUT_BACK and record is not None:
        # Only the ledger knows whether somebody asked for its end.
        async with turn:
            action = plan_stack(await look(client, drift.address, record))
    return view_drift(drift, action, record)
