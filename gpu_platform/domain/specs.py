"""GPUSpec: an entry of the catalogue. What `specName` means wherever it stands."""

from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.domain.quantities import LONGEST_TEXT
from gpu_platform.domain.value import Value

GPU_LIMIT = 64
"""GPUs of one unit: more than any machine has."""

DEFAULT_EPHEMERAL_STORAGE = "10Gi"
"""Of an entry that says nothing, as those of earlier versions."""

SpecName = Annotated[
    str, Field(min_length=1, max_length=63, description="Name of the GPUSpec that says size and place.")
]
QuantityText = Annotated[str, Field(max_length=LONGEST_TEXT)]
LabelKey = Annotated[str, Field(max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]


class Toleration(Value):
    """A taint that the unit's pod tolerates."""

    key: Annotated[LabelKey | None, Field(description="The taint's key; without one, every taint.")] = None
    operator: Annotated[Literal["Exists", "Equal"], Field(description="Exists tolerates any value of the key.")] = (
        "Equal"
    )
    value: Annotated[LabelValue | None, Field(description="The taint's value, for Equal.")] = None
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None,
        Field(description="Without one, every effect."),
    ] = None


class GPUSpecSpec(Value):
    """The size and the place of a unit. Everything but the price is fixed once the entry exists: running units
    were built from it, and a change would restart them behind their tenants' backs."""

    cpu: Annotated[QuantityText, Field(description="CPU of a unit, a quantity.")] = "1"
    memory: Annotated[QuantityText, Field(description="Memory of a unit, a quantity.")]
    ephemeral_storage: Annotated[
        QuantityText | None,
        Field(
            description="What a unit may write to its node's disk, logs included, a quantity; more ends its pod. "
            f"Without one, {DEFAULT_EPHEMERAL_STORAGE}."
        ),
    ] = None
    gpu: Annotated[int, Field(ge=0, le=GPU_LIMIT, description="GPUs of a unit.")]
    gpu_product: Annotated[LabelValue | None, Field(description="Model name, as `nvidia.com/gpu.product` says it.")] = (
        None
    )
    node_selector: Annotated[
        dict[str, LabelValue], Field(max_length=32, description="Labels of the nodes that a unit may run on.")
    ] = Field(default={})
    tolerations: Annotated[
        tuple[Toleration, ...], Field(max_length=32, description="Taints that a unit tolerates.")
    ] = ()
    runtime_class_name: Annotated[
        str | None,
        Field(max_length=253, description="RuntimeClass of a unit's pod; without one, the cluster's own."),
    ] = None
    user_namespaces: Annotated[bool, Field(description="Root inside is nobody outside (`hostUsers: false`).")] = False
    price_per_hour: Annotated[
        str | None, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?$", description="A decimal number.")
    ] = None
