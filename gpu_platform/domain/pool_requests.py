"""What an operator asks of the stock: so many units once, or a pool; and how the request becomes a GPUSpec and a
StockPool.

Recovery builds both from the recorded request alone, so whatever the API promises is decided here.
"""

import hashlib
import re
from typing import Annotated, Any, Literal

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.crds import POOL_NAME_LIMIT
from gpu_platform.domain.quantities import QuantityError, parse_amount
from gpu_platform.domain.specs import GPU_LIMIT, GPUSpecSpec, QuantityText
from gpu_platform.domain.stock_pools import REPLICAS_LIMIT, StockPoolSpec
from gpu_platform.domain.units import Image, accepted_text
from gpu_platform.domain.value import Value

Json = dict[str, Any]

DIGEST_LENGTH = 10

CatalogueName = Annotated[
    str,
    # As Kubernetes has it for the name of an object, and short enough for a label's value.
    Field(
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        min_length=1,
        max_length=63,
        description="Name of the GPUSpec that says size and place.",
    ),
]
PoolName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        min_length=1,
        max_length=POOL_NAME_LIMIT,
        description="Name of the pool.",
    ),
]
Memory = Annotated[QuantityText, Field(description="Memory of a unit, a quantity; needed for a spec that is new.")]
Gpu = Annotated[int, Field(ge=0, le=GPU_LIMIT, description="GPUs of a unit; needed for a spec that is new.")]


class StockUnitsRequest(Value):
    """So many stock units, made once."""

    spec_name: CatalogueName
    memory: Memory | None = None
    gpu: Gpu | None = None
    replicas: Annotated[int, Field(ge=1, le=REPLICAS_LIMIT, description="Units to make.")]


class PoolRequest(Value):
    """A pool, with its name said: one that the caller left out is `default_pool_name`."""

    name: PoolName
    spec_name: CatalogueName
    image: Image | None = None
    memory: Memory | None = None
    gpu: Gpu | None = None
    replicas: Annotated[int, Field(ge=0, le=REPLICAS_LIMIT, description="Free units to hold.")]
    replenish: Annotated[Literal["Always", "Never"], Field(description="As in a StockPool.")] = "Always"


StockRequest = StockUnitsRequest | PoolRequest


def seed_pool_name(spec_name: str, operation_id: str) -> str:
    """The pool behind stock units that are made once: one for each operation."""
    return _derived_name("stock-", spec_name, operation_id)


def default_pool_name(spec_name: str, operation_id: str) -> str:
    """For a pool that was asked for without a name: a retry finds the same one."""
    return _derived_name("pool-", spec_name, operation_id)


def pool_spec_of(request: StockRequest) -> StockPoolSpec:
    match request:
        case StockUnitsRequest():
            return StockPoolSpec(spec_name=request.spec_name, replicas=request.replicas, replenish="Never")
        case PoolRequest():
            return StockPoolSpec(
                spec_name=request.spec_name,
                replicas=request.replicas,
                replenish=request.replenish,
                image=request.image,
            )


def build_pool(request: StockRequest, name: str, operation_id: str, request_hash: str) -> Json:
    spec = pool_spec_of(request)
    annotations = {
        **_made_by(operation_id, request_hash),
        names.ANNOTATION_ACCEPTED_SPEC: accepted_text(spec),
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "StockPool",
        "metadata": {
            "name": name,
            "namespace": names.STOCK_NAMESPACE,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE},
            "annotations": annotations,
        },
        "spec": spec.to_json(),
    }


def build_spec(request: StockRequest, operation_id: str, request_hash: str) -> Json | None:
    """The entry of the catalogue that the request brings along; None when it does not say memory and GPUs."""
    if request.memory is None or request.gpu is None:
        return None
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUSpec",
        "metadata": {
            "name": request.spec_name,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE},
            "annotations": _made_by(operation_id, request_hash),
        },
        "spec": GPUSpecSpec(memory=request.memory, gpu=request.gpu).to_json(),
    }


def find_size_problem(request: StockRequest, catalogue: GPUSpecSpec | None) -> str | None:
    """Why there can be no stock of this spec in this size; None when there can.

    | GPUSpec | memory and gpu of the request      | problem                |
    | ------- | ---------------------------------- | ---------------------- |
    | any     | memory is no quantity              | that                   |
    | missing | both said                          | none                   |
    | missing | any left out                       | there is no such spec  |
    | exists  | what is said is equal, as an amount | none                   |
    | exists  | any other                          | what the spec has      |
    """
    name = request.spec_name
    try:
        asked = None if request.memory is None else parse_amount(request.memory)
        known = None if catalogue is None else parse_amount(catalogue.memory)
    except QuantityError as error:
        return f"memory: {error}"
    if catalogue is None:
        is_complete = request.memory is not None and request.gpu is not None
        return None if is_complete else f"there is no GPUSpec {name!r}, and a new one needs memory and gpu"
    if asked is not None and asked != known:
        return f"memory: the GPUSpec {name!r} has {catalogue.memory}, not {request.memory}"
    if request.gpu is not None and request.gpu != catalogue.gpu:
        return f"gpu: the GPUSpec {name!r} has {catalogue.gpu}, not {request.gpu}"
    return None


def _made_by(operation_id: str, request_hash: str) -> dict[str, str]:
    return {names.ANNOTATION_OPERATION_ID: operation_id, names.ANNOTATION_REQUEST_HASH: request_hash}


def _derived_name(prefix: str, spec_name: str, operation_id: str) -> str:
    digest = hashlib.sha256(operation_id.encode()).hexdigest()[:DIGEST_LENGTH]
    room = POOL_NAME_LIMIT - len(prefix) - 1 - len(digest)
    return f"{prefix}{re.sub('[^a-z0-9]', '-', spec_name)[:room]}-{digest}"
