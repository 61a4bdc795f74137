"""What callers are shown of the catalogue."""

from typing import Annotated, Any

from pydantic import Field

from gpu_platform.domain.specs import GPUSpecSpec

Json = dict[str, Any]


class SpecView(GPUSpecSpec):
    """An entry of the catalogue."""

    name: Annotated[str, Field(description="What `specName` says wherever it stands.")]


def view_of(spec: Json) -> SpecView:
    return SpecView.model_validate({**spec["spec"], "name": spec["metadata"]["name"]})
