"""What callers are shown of stacks and of previews."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain.operations import OperationPhase
from gpu_platform.domain.stack_previews import PreviewResult, PreviewStep
from gpu_platform.domain.stack_records import StackRecord, is_recorded
from gpu_platform.domain.stacks import Intent
from gpu_platform.domain.value import Value
from gpu_platform.store.ledger import spec_of, status_of
from platform_api.fields import OperationIDText

Json = dict[str, Any]


class StackView(Value):
    """The Pulumi stack of a unit or a pool."""

    name: Annotated[str, Field(description="Its project and name, such as gpu-unit/default.web.")]
    recorded: Annotated[bool, Field(description="Whether it says what was accepted last.")]
    accepted_hash: Annotated[str, Field(description="SHA-256 of what was accepted last.")]
    recorded_hash: Annotated[str | None, Field(description="The same of what it says; absent before the first.")] = None
    recorded_at: datetime | None = None
    resources: int | None = None
    outputs: dict[str, Any] | None = None
    error: Annotated[str | None, Field(description="Why the last try failed. It is tried again.")] = None
    failures: Annotated[int, Field(description="Tries that failed since the last good one.")] = 0


class PreviewUnit(Value):
    """A wish to know what Pulumi would change."""

    operation_id: Annotated[
        OperationIDText | None, Field(alias="operationID", description="As in every request; by default a random one.")
    ] = None


class PreviewView(Value):
    """A preview: asked for, under way, or done."""

    operation_id: Annotated[str, Field(alias="operationID")]
    unit: str
    phase: OperationPhase
    reason: Annotated[str | None, Field(description="Why it failed, in one word.")] = None
    message: Annotated[str | None, Field(description="Why it failed, in words.")] = None
    changes: Annotated[
        dict[str, int] | None, Field(description="Resources by what would be done with them: create, update, same.")
    ] = None
    steps: tuple[PreviewStep, ...] | None = None
    created_at: datetime
    finished_at: datetime | None = None


def view_of(intent: Intent, record: StackRecord | None) -> StackView:
    """An error is shown whomever the record is about: a stack of this name that cannot be removed is in the way."""
    recorded = record.recorded if record is not None and record.uid == intent.uid else None
    return StackView(
        name=intent.address.full_name,
        recorded=is_recorded(record, intent),
        accepted_hash=intent.accepted_hash,
        recorded_hash=recorded.accepted_hash if recorded else None,
        recorded_at=recorded.at if recorded else None,
        resources=recorded.resources if recorded else None,
        outputs=recorded.outputs if recorded else None,
        error=record.error if record else None,
        failures=record.failures if record else 0,
    )


def preview_view_of(operation: Json) -> PreviewView:
    spec, status = spec_of(operation), status_of(operation)
    result = PreviewResult.model_validate(status.result) if status.result is not None else None
    return PreviewView(
        operation_id=spec.operation_id,
        unit=spec.target.name,
        phase=status.phase or OperationPhase.PENDING,
        reason=status.reason,
        message=status.message,
        changes=result.changes if result else None,
        steps=result.steps if result else None,
        created_at=datetime.fromisoformat(operation["metadata"]["creationTimestamp"]),
        finished_at=status.finished_at,
    )
