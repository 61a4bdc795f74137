"""What operators are shown of drift."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain.stack_plan import Action, Difference
from gpu_platform.domain.stack_records import StackRecord
from gpu_platform.domain.value import Value
from platform_api.stacks.drift import Correction, Drift

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


class FieldDrift(Value):
    """One field of the spec. What is absent is not said."""

    field: Annotated[str, Field(description="Such as spec.image.")]
    accepted: Any = None
    found: Any = None


class DriftView(Value):
    """An object that is not as its records say."""

    stack: Annotated[str, Field(description="Its project and name, such as gpu-unit/default.web.")]
    kind: str
    tenant: str
    name: str
    since: Annotated[datetime, Field(description="When this process of the API saw it first.")]
    action: Annotated[str, Field(description="nothing, wait, delete, revert, record, put_back or remove.")]
    doing: Annotated[str, Field(description="The same in words, with who does it.")]
    differences: tuple[FieldDrift, ...] = ()
    error: Annotated[str | None, Field(description="Why the last try failed. It is tried again.")] = None
    failures: Annotated[int, Field(description="Tries that failed since the last good one.")] = 0


class CorrectionView(Value):
    """Drift that was put right."""

    stack: str
    since: datetime
    corrected_at: datetime
    differences: Annotated[tuple[FieldDrift, ...], Field(description="Empty when the object itself was gone.")] = ()


class DriftReport(Value):
    """What differs now, and what was put right lately, as this process of the API saw it."""

    items: tuple[DriftView, ...]
    total: Annotated[int, Field(description="How many differ; the items are those that differ longest.")]
    corrected: Annotated[tuple[CorrectionView, ...], Field(description="The last ones, newest first.")]


def view_of(drift: Drift, action: Action, record: StackRecord | None) -> DriftView:
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


def correction_of(correction: Correction) -> CorrectionView:
    drift = correction.drift
    return CorrectionView(
        stack=drift.address.full_name,
        since=drift.since,
        corrected_at=correction.at,
        differences=_fields_of(drift.differences),
    )


def _fields_of(differences: tuple[Difference, ...]) -> tuple[FieldDrift, ...]:
    return tuple(FieldDrift(field=each.field, accepted=each.accepted, found=each.found) for each in differences)
