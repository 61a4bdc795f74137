"""Requests and answers about Pulumi stacks: their records, previews, and drift."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from gpu_platform.api_models.fields import OperationIDText
from gpu_platform.domain.operations import OperationPhase
from gpu_platform.domain.stacks import PreviewStep
from gpu_platform.domain.value import Value


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
