"""Who may mount a storage: one unit at a time, decided on the GPUStorage itself.

The hold is written onto the storage before the unit is created or changed, as a compare-and-swap on its
resourceVersion, so that of any number of API processes, controllers and people with kubectl exactly one gets it.
The same swap sees the storage's deletion, and a recovery of its preparation.

| annotation    | says                                                                                     |
| ------------- | ---------------------------------------------------------------------------------------- |
| `mounted-by`  | `unit/<name>`, or `storage/<name>` while that storage is being filled with a copy of it  |
| `mounted-at`  | when the hold was taken                                                                  |
| `mounted-uid` | the unit or storage that was seen to need it; missing while that is still being written  |

A hold that nobody confirmed is kept for `HOLD_GRACE`, because its request may still be on its way. A confirmed one
ends as soon as its holder, read from the API server and not from a cache, needs it no more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import CLOCK_SKEW, annotations_of, parse_instant

HOLD_GRACE = timedelta(seconds=120)
"""Longer than any request lives, and than recovery takes to finish what a dead process accepted (60 s)."""

RELEASE_SECONDS = HOLD_GRACE.total_seconds() + 60
"""How long the deletion of a storage waits for a unit that needs it no more: the hold of one that was never confirmed
lasts for `HOLD_GRACE`."""


class HolderKind(StrEnum):
    UNIT = "unit"
    STORAGE = "storage"


@dataclass(frozen=True)
class Holder:
    """A unit that mounts the storage, or a storage that is being filled from it; both of the same namespace."""

    kind: HolderKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True)
class Hold:
    holder: Holder
    taken_at: datetime
    uid: str | None
    """Of the holder, once it was seen to need the storage."""


@dataclass(frozen=True)
class KeepHold:
    """Nothing to do, or nothing before this instant."""

    until: datetime | None = None


@dataclass(frozen=True)
class ConfirmHold:
    uid: str


@dataclass(frozen=True)
class EndHold:
    pass


HoldPlan = KeepHold | ConfirmHold | EndHold


def unit_holder(name: str) -> Holder:
    return Holder(HolderKind.UNIT, name)


def hold_of(storage: Json) -> Hold | None:
    """Who holds it. A text that none of us wrote is nobody's."""
    annotations = annotations_of(storage)
    kind, _, name = annotations.get(names.ANNOTATION_MOUNTED_BY, "").partition("/")
    if kind not in tuple(HolderKind) or not name:
        return None
    uid = annotations.get(names.ANNOTATION_MOUNTED_UID) or None
    return Hold(Holder(HolderKind(kind), name), _parse_instant(annotations.get(names.ANNOTATION_MOUNTED_AT, "")), uid)


def mounting_unit_of(storage: Json) -> str | None:
    """The unit that mounts it, or is about to."""
    hold = hold_of(storage)
    return hold.holder.name if hold is not None and hold.holder.kind is HolderKind.UNIT else None


def will_release(unit: Mapping[str, Any] | None, storage: str) -> bool:
    """Whether a unit that holds the storage needs it no more, so that its release is a matter of time. The unit is as
    the REST API shows it.

    | unit                       | will release |
    | -------------------------- | ------------ |
    | gone, or Terminating       | yes          |
    | does not mount it any more | yes          |
    | any other, also Stopped    | no           |
    """
    if unit is None or unit["phase"] == "Terminating":
        return True
    return all(mount["name"] != storage for mount in unit.get("storageMounts") or ())


def is_holdable(storage: Json, holder: Holder) -> bool:
    """Whether this holder may take it now. It may take again what it has: that makes the hold young."""
    if "deletionTimestamp" in storage["metadata"]:
        return False
    hold = hold_of(storage)
    return hold is None or hold.holder == holder


def build_hold(storage: Json, holder: Holder, now: datetime) -> Json:
    """The metadata of a storage that this holder takes. With the finalizer: what is held is not deleted."""
    finalizers = storage["metadata"].get("finalizers") or []
    return {
        "finalizers": [*finalizers, *({names.STORAGE_FINALIZER} - set(finalizers))],
        "annotations": {
            names.ANNOTATION_MOUNTED_BY: str(holder),
            names.ANNOTATION_MOUNTED_AT: now.isoformat(),
            names.ANNOTATION_MOUNTED_UID: None,
        },
    }


def build_end_of_hold() -> Json:
    fields = (names.ANNOTATION_MOUNTED_BY, names.ANNOTATION_MOUNTED_AT, names.ANNOTATION_MOUNTED_UID)
    return {"annotations": dict.fromkeys(fields)}


def plan_hold(hold: Hold, needed_by: str | None, now: datetime) -> HoldPlan:
    """What becomes of a hold. `needed_by` is the uid of the live holder that needs the storage, None without one.

    | confirmed for | needed by  | age           | then                    |
    | ------------- | ---------- | ------------- | ----------------------- |
    | nobody        | a holder   | any           | confirm                 |
    | a holder      | the same   | any           | keep                    |
    | a holder      | another    | any           | confirm for the other   |
    | a holder      | nobody     | any           | end                     |
    | nobody        | nobody     | in the future | end                     |
    | nobody        | nobody     | within grace  | keep until it is over   |
    | nobody        | nobody     | past grace    | end                     |
    """
    if needed_by is not None:
        return KeepHold() if hold.uid == needed_by else ConfirmHold(needed_by)
    ends_at = hold.taken_at + HOLD_GRACE
    is_young = hold.taken_at <= now + CLOCK_SKEW and now < ends_at
    return KeepHold(ends_at) if hold.uid is None and is_young else EndHold()


def _parse_instant(text: str) -> datetime:
    """Long ago for what is no instant: such a hold has no grace."""
    try:
        return parse_instant(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
