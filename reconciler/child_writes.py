"""What a plan may do to an object that a custom resource owns. Pure; `guarded_writes` carries it out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from reconciler.child_diff import build_replacement, is_as_desired, note_fields

Json = dict[str, Any]
Kind = TypeVar("Kind", bound=StrEnum)


@dataclass(frozen=True)
class CreateChild(Generic[Kind]):
    kind: Kind
    body: Json


@dataclass(frozen=True)
class ReplaceChild(Generic[Kind]):
    kind: Kind
    body: Json


@dataclass(frozen=True)
class DeleteChild(Generic[Kind]):
    kind: Kind
    live: Json


ChildWrite = CreateChild[Kind] | ReplaceChild[Kind] | DeleteChild[Kind]


def plan_child(kind: Kind, desired: Json | None, live: Json | None) -> tuple[ChildWrite[Kind], ...]:
    """
    | desired | there                      | write      |
    | ------- | -------------------------- | ---------- |
    | no      | nothing, or on its way out | none       |
    | no      | something                  | delete it  |
    | yes     | nothing                    | create it  |
    | yes     | as desired                 | none       |
    | yes     | anything else              | replace it |
    """
    if desired is None:
        return plan_removal(kind, live) if live is not None else ()
    desired = note_fields(desired)
    if live is None:
        return (CreateChild(kind, desired),)
    return () if is_as_desired(desired, live) else (ReplaceChild(kind, build_replacement(desired, live)),)


def plan_removal(kind: Kind, live: Json) -> tuple[ChildWrite[Kind], ...]:
    return () if "deletionTimestamp" in live["metadata"] else (DeleteChild(kind, live),)
