"""What a tenant asks of a function: the accepted request, how it becomes a GPUFunction, and how a change is merged into
one; and the function that is made after a unit.

Recovery goes by the recorded request alone, so whatever the API promises is decided here.
"""

from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.gpu_functions import (
    FUNCTION_NAME,
    FUNCTION_NAME_LIMIT,
    AckWait,
    CallTimeout,
    Concurrency,
    FunctionImage,
    GPUFunctionSpec,
    IdleTimeout,
    MaxAttempts,
    MaxWorkers,
    MinWorkers,
    QueueLimit,
)
from gpu_platform.domain.gpu_units import Framework, GPUUnitSpec, Template
from gpu_platform.domain.units import RequestError, accepted_text, check_framework, check_template
from gpu_platform.domain.value import Value

Json = dict[str, Any]

NAME_RULE = f"should be 1 to {FUNCTION_NAME_LIMIT} lower-case letters, digits and inner hyphens"


class FunctionRequest(GPUFunctionSpec):
    """A create request after all checks that need no look-up: what is hashed and recorded."""

    name: str

    def to_spec(self) -> GPUFunctionSpec:
        return GPUFunctionSpec.model_validate(self.model_dump(exclude={"name"}))


class FunctionChange(Value):
    """A change of a function. What is not said stays; what is said takes the place of what was, as a whole."""

    image: FunctionImage | None = None
    template: Template | None = None
    framework: Framework | None = None
    concurrency: Concurrency | None = None
    min_workers: MinWorkers | None = None
    max_workers: MaxWorkers | None = None
    idle_timeout_seconds: IdleTimeout | None = None
    timeout_seconds: CallTimeout | None = None
    max_attempts: MaxAttempts | None = None
    ack_wait_seconds: AckWait | None = None
    queue_limit: QueueLimit | None = None


def is_function_name(text: str) -> bool:
    return FUNCTION_NAME.fullmatch(text) is not None


def normalise_function(request: FunctionRequest) -> FunctionRequest:
    """The request as it is; RequestError for what the schema alone cannot see."""
    if not is_function_name(request.name):
        raise RequestError("name", NAME_RULE)
    check_function(request)
    return request


def check_function(spec: GPUFunctionSpec) -> None:
    check_template(spec.template)
    check_framework(spec.framework, "framework")
    if spec.min_workers > spec.max_workers:
        raise RequestError(
            "minWorkers", f"should be no more than maxWorkers: {spec.min_workers} is more than {spec.max_workers}"
        )


def merge_function_change(spec: GPUFunctionSpec, change: FunctionChange) -> GPUFunctionSpec:
    """The spec after the change; RequestError for one that cannot be."""
    merged = spec.model_copy(update={field: value for field, value in change if value is not None})
    check_function(merged)
    return merged


def build_function(request: FunctionRequest, namespace: str, operation_id: str, request_hash: str) -> Json:
    spec = request.to_spec()
    marks = {names.ANNOTATION_OPERATION_ID: operation_id, names.ANNOTATION_REQUEST_HASH: request_hash}
    return _build(request.name, namespace, spec, {**marks, names.ANNOTATION_ACCEPTED_SPEC: accepted_text(spec)})


def function_of_unit(unit: Json) -> Json | None:
    """The function that is made after a unit which takes calls of one that does not exist. Nobody accepted it, so no
    stack keeps it. None for a unit that takes no calls, or that has no image to make workers of."""
    spec = GPUUnitSpec.model_validate(unit["spec"])
    if spec.serverless is None or spec.image is None:
        return None
    wish = spec.serverless
    function = GPUFunctionSpec(
        spec_name=spec.spec_name,
        image=spec.image,
        template=spec.template,
        framework=wish.framework,
        min_workers=wish.min_available_count,
        max_workers=max(1, wish.min_available_count),
        idle_timeout_seconds=wish.idle_timeout_seconds,
    )
    return _build(wish.request_id, unit["metadata"]["namespace"], function, {})


def _build(name: str, namespace: str, spec: GPUFunctionSpec, annotations: dict[str, str]) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUFunction",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE},
            "annotations": annotations,
        },
        "spec": spec.to_json(),
    }
