"""The status of an object, and its conditions: what is true of it, since when, and why."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from gpu_platform.domain.value import Value

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Value):
    type: Annotated[str, Field(description="What is said to be true or not, such as Ready.")]
    status: Annotated[ConditionStatus, Field(description="Whether it is; Unknown when nobody can tell.")]
    reason: Annotated[str, Field(description="Why, in one word for programs.")]
    message: Annotated[str, Field(description="Why, in words for people.")] = ""
    observed_generation: Annotated[int | None, Field(description="Generation of the spec that was looked at.")] = None
    last_transition_time: Annotated[datetime, Field(description="When the status last became another one.")]


class ObjectStatus(Value):
    """The status of an object of any of our kinds."""

    @classmethod
    def of(cls, item: dict[str, Any]) -> Self:
        """Returns the status of this object; a young object's may be missing, or null."""
        return cls.model_validate(item.get("status") or {})


def set_condition(
    conditions: Sequence[Condition],
    type_: str,
    *,
    is_met: bool,
    reason: str,
    message: str,
    generation: int | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Returns the conditions with this one as it is now, see `with_condition`."""
    new = Condition(
        type=type_,
        status="True" if is_met else "False",
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=now,
    )
    return with_condition(conditions, new)


def with_condition(conditions: Sequence[Condition], new: Condition) -> tuple[Condition, ...]:
    """The conditions with this one in its place. The transition time moves only when the status does."""
    old = find_condition(conditions, new.type)
    if old is None:
        return (*conditions, new)
    if old.status == new.status:
        new = new.model_copy(update={"last_transition_time": old.last_transition_time})
    return tuple(new if condition.type == new.type else condition for condition in conditions)


def find_condition(conditions: Sequence[Condition], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


def reason_of(conditions: Sequence[Condition], type_: str = "Ready") -> str | None:
    condition = find_condition(conditions, type_)
    return condition.reason if condition is not None else None


def condition_of(item: dict[str, Any], type_: str) -> dict[str, Any] | None:
    """The condition of a plain object. A young object's conditions may be missing, or null."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == type_), None)


def is_true(item: dict[str, Any], type_: str) -> bool:
    """Whether a condition of this plain object is true."""
    condition = condition_of(item, type_)
    return condition is not None and condition["status"] == "True"
