"""What a preview of a stack found out, as its Operation keeps it and the API shows it."""

from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain.value import Value


class PropertyChange(Value):
    """One field that would change."""

    path: Annotated[str, Field(description="Where, such as spec.image.")]
    kind: Annotated[str, Field(description="add, delete or update; with -replace, the object would be made anew.")]
    old: Annotated[Any, Field(description="What the cluster says; absent where that is not known.")] = None
    new: Annotated[Any, Field(description="What was accepted; absent where that is not known.")] = None


class PreviewStep(Value):
    """What would be done with one resource of the stack."""

    op: Annotated[str, Field(description="create, update, replace, delete, or same: nothing.")]
    resource: Annotated[str, Field(description="Its name in the stack.")]
    type: Annotated[str, Field(description="Its type in Pulumi's words.")]
    properties: tuple[PropertyChange, ...] = ()


class PreviewResult(Value):
    """Everything that would be done."""

    changes: Annotated[dict[str, int], Field(description="Resources by what would be done with them.")]
    steps: tuple[PreviewStep, ...] = ()
