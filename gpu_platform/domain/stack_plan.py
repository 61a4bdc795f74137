"""What to do when the three records of one object differ: its stack, its custom resource, and what was asked for.

The stack worker does the rows that need Pulumi, the reconciler the others.
"""

from dataclasses import dataclass
from enum import Enum

from gpu_platform.domain.drift import find_differences
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import Intent, StackRecord, intent_of, is_recorded


class Action(Enum):
    NOTHING = "nothing"
    WAIT = "wait until the object is gone"
    DELETE = "delete the object"
    REVERT = "put the accepted spec back"
    RECORD = "record the object"
    PUT_BACK = "make the object again"
    REMOVE = "remove the stack"


@dataclass(frozen=True)
class Records:
    """Of one stack's address."""

    item: Json | None
    """The custom resource that has the name now."""

    stack: StackRecord | None
    is_delete_asked: bool = False
    """Somebody asked for the end of the very object that the stack, or else the custom resource, is about."""

    is_accepted: bool = False
    """The ledger says that the very object which the stack is about was accepted."""

    @property
    def intent(self) -> Intent | None:
        """What was accepted for the custom resource; None for none, and for one that is not ours to record."""
        return intent_of(self.item) if self.item is not None else None


def plan_stack(records: Records) -> Action:
    """Rows from top to bottom. *Its* custom resource is the one with the uid that the stack is about; a stack that is
    about another one than the custom resource of its name has none.

    | custom resource                       | stack                    | end asked for | accepted | action   |
    | ------------------------------------- | ------------------------ | ------------- | -------- | -------- |
    | none                                  | none                     | any           | any      | NOTHING  |
    | none                                  | there                    | yes           | any      | REMOVE   |
    | none                                  | begun                    | no            | any      | REMOVE   |
    | none                                  | recorded                 | no            | yes      | PUT_BACK |
    | none                                  | recorded                 | no            | no       | NOTHING  |
    | one of another uid                    | there                    | any           | any      | REMOVE   |
    | nobody accepted it, or it is owned    | none, or its             | any           | any      | NOTHING  |
    | being deleted                         | none, or its             | any           | any      | WAIT     |
    | accepted                              | none, or its             | yes           | any      | DELETE   |
    | accepted, spec is not as accepted     | none, or its             | no            | any      | REVERT   |
    | accepted                              | none, or recorded other  | no            | any      | RECORD   |
    | accepted                              | recorded as accepted     | no            | any      | NOTHING  |

    A recorded object of which nobody says why it is gone, not even the ledger, is kept: with a namespace or a CRD both
    go at once, and the stack is all that is left to make it again from.
    """
    item, stack = records.item, records.stack
    if item is None:
        return _plan_without_object(records)
    if stack is not None and stack.uid != item["metadata"]["uid"]:
        return Action.REMOVE
    intent = records.intent
    if intent is None:
        return Action.NOTHING
    if "deletionTimestamp" in item["metadata"]:
        return Action.WAIT
    if records.is_delete_asked:
        return Action.DELETE
    if find_differences(item, intent):
        return Action.REVERT
    return Action.NOTHING if is_recorded(stack, intent) else Action.RECORD


def _plan_without_object(records: Records) -> Action:
    if records.stack is None:
        return Action.NOTHING
    if records.is_delete_asked or records.stack.recorded is None:
        return Action.REMOVE
    return Action.PUT_BACK if records.is_accepted else Action.NOTHING
