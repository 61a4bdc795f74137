"""A function's workers: how each is called, what it is to be, and whether it is. Pure."""

from datetime import datetime
from typing import Any

from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.gpu_functions import GPUFunctionSpec
from gpu_platform.domain.gpu_units import GPUUnitSpec, Serverless
from gpu_platform.domain.metadata import controller_of, labels_of
from gpu_platform.domain.units import source_annotations, source_labels

Json = dict[str, Any]


def claim_mark(function: Json) -> str:
    """In the place of an Operation's name, and never one: a claim that names no Operation has a minute, in which the
    worker is made. If this process dies before, the stock is free again after that."""
    return f"function/{function['metadata']['namespace']}/{function['metadata']['name']}"


def find_ordinal(function: Json, unit: Json) -> int | None:
    """Which of the function's workers this unit is, by its name."""
    parsed = names.parse_worker_name(unit["metadata"]["name"])
    return parsed[1] if parsed is not None and parsed[0] == function["metadata"]["name"] else None


def is_made_by(unit: Json, function: Json) -> bool:
    """By this very function, not by an earlier one of its name."""
    owner = controller_of(unit)
    return owner is not None and owner["uid"] == function["metadata"]["uid"]


def is_leftover(unit: Json, function: Json) -> bool:
    """Of an earlier function of this name, or on its way out: its name will be free soon."""
    if "deletionTimestamp" in unit["metadata"]:
        return True
    owner = controller_of(unit)
    return (
        owner is not None
        and owner["kind"] == "GPUFunction"
        and owner["name"] == function["metadata"]["name"]
        and owner["uid"] != function["metadata"]["uid"]
    )


def build_worker(
    function: Json, spec: GPUFunctionSpec, ordinal: int, stock: Json, *, woken_at: datetime, claimed_at: datetime
) -> Json:
    """The worker that takes over this claimed stock. Nobody accepted it, so no stack keeps it."""
    metadata = function["metadata"]
    size = GPUUnitSpec(spec_name=spec.spec_name, memory=stock["spec"].get("memory"), gpu=stock["spec"].get("gpu"))
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUUnit",
        "metadata": {
            "name": names.worker_name(metadata["name"], ordinal),
            "namespace": metadata["namespace"],
            "labels": {**source_labels(stock), names.LABEL_FUNCTION: metadata["name"]},
            "annotations": {
                **source_annotations(stock),
                names.ANNOTATION_WOKEN_AT: woken_at.isoformat(),
                names.ANNOTATION_CLAIMED_AT: claimed_at.isoformat(),
            },
            "ownerReferences": [names.owner_reference("GPUFunction", metadata["name"], metadata["uid"])],
        },
        "spec": _as_wanted(size, function, spec).to_json(),
    }


def renew_worker(unit: Json, function: Json, spec: GPUFunctionSpec) -> Json | None:
    """The worker as the function says now, as it was seen otherwise; None when it is so already."""
    now = GPUUnitSpec.model_validate(unit["spec"])
    wanted = _as_wanted(now, function, spec)
    labels = {**labels_of(unit), names.LABEL_FUNCTION: function["metadata"]["name"]}
    if wanted == now and labels == labels_of(unit):
        return None
    return {**unit, "metadata": {**unit["metadata"], "labels": labels}, "spec": wanted.to_json()}


def is_replaced(unit: Json, spec: GPUFunctionSpec) -> bool:
    """Whether it cannot become what is wanted: it has another size, gave its GPUs back, or cannot be read."""
    try:
        now = GPUUnitSpec.model_validate(unit["spec"])
    except ValidationError:
        return True
    return now.spec_name != spec.spec_name or not now.running


def _as_wanted(unit: GPUUnitSpec, function: Json, spec: GPUFunctionSpec) -> GPUUnitSpec:
    """The size stays that of the stock."""
    return unit.model_copy(
        update={
            "image": spec.image,
            "template": spec.template,
            "access": None,
            "serverless": Serverless(
                request_id=function["metadata"]["name"],
                min_available_count=spec.min_workers,
                idle_timeout_seconds=spec.idle_timeout_seconds,
                framework=spec.framework,
            ),
        }
    )
