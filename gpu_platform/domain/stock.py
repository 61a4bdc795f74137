"""Warm stock: pools and what an operator asks of them, which stock unit is free, and which one a claim takes.

Recovery builds a GPUSpec and a StockPool from the recorded request alone, so all that the API promises is decided here.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.conditions import Condition, ObjectStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, build_object, find_instant, labels_of, request_marks
from gpu_platform.domain.names import UNIT_NAME_LIMIT
from gpu_platform.domain.quantities import QuantityError, parse_amount
from gpu_platform.domain.specs import GPU_LIMIT, GPUSpecSpec, QuantityText, SpecName
from gpu_platform.domain.units import Image, Phase, accepted_annotations
from gpu_platform.domain.value import Value, fields_of

POOL_NAME_LIMIT = UNIT_NAME_LIMIT
REPLICAS_LIMIT = 10_000
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

HANDOFF_LIMIT = timedelta(seconds=5)
"""How long a unit waits for its stock's pod to be gone before it tries its luck with the scheduler. Other stock holds
back as long: whatever becomes free meanwhile is for the unit."""


class PoolPhase(StrEnum):
    PROGRESSING = "Progressing"
    READY = "Ready"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class PoolReason(StrEnum):
    DEPLOYMENT_PROGRESSING = "DeploymentProgressing"
    DEPLOYMENT_READY = "DeploymentReady"
    SCALED_TO_ZERO = "ScaledToZero"
    INVALID_SPEC = "InvalidSpec"


class StockPoolSpec(Value):
    """The stock to hold. Another spec is another pool."""

    spec_name: SpecName
    replicas: Annotated[int, Field(ge=0, le=REPLICAS_LIMIT, description="Free units to hold.")]
    replenish: Annotated[
        Literal["Always", "Never"],
        Field(description="Never: made once, and one comes back when a unit that was taken from here is deleted."),
    ] = "Always"
    image: Annotated[str | None, Field(description="The placeholder's image.")] = None


class StockPoolStatus(ObjectStatus):
    """The stock that is held."""

    available: Annotated[int, Field(description="Free units that are Ready.")] = 0
    claimed: Annotated[int, Field(description="Units on their way to a tenant.")] = 0
    seeded: Annotated[int, Field(description="Ordinals ever made, of a pool that does not replenish.")] = 0
    lent: Annotated[
        tuple[str, ...], Field(description="Running units of a pool that does not replenish: uid/stock unit.")
    ] = ()
    phase: Annotated[PoolPhase | None, Field(description="The state in one word; the condition Ready says why.")] = None
    observed_generation: Annotated[int | None, Field(description="Generation of the spec that was looked at.")] = None
    last_sync_time: Annotated[datetime | None, Field(description="When this status was last written.")] = None
    conditions: Annotated[tuple[Condition, ...], Field(description="Ready, and why or why not.")] = ()


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


def build_pool(request: StockRequest, name: str, operation_id: str, request_hash: str) -> Json:
    once = {"replenish": "Never"} if isinstance(request, StockUnitsRequest) else {}
    spec = StockPoolSpec(**(fields_of(request, StockPoolSpec) | once))
    annotations = accepted_annotations(spec, operation_id, request_hash)
    return build_object("StockPool", name, names.STOCK_NAMESPACE, spec, annotations=annotations)


def build_spec(request: StockRequest, operation_id: str, request_hash: str) -> Json | None:
    """The entry of the catalogue that the request brings along; None when it does not say memory and GPUs."""
    if request.memory is None or request.gpu is None:
        return None
    spec = GPUSpecSpec(memory=request.memory, gpu=request.gpu)
    return build_object("GPUSpec", request.spec_name, None, spec, annotations=request_marks(operation_id, request_hash))


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


def _derived_name(prefix: str, spec_name: str, operation_id: str) -> str:
    digest = hashlib.sha256(operation_id.encode()).hexdigest()[:DIGEST_LENGTH]
    room = POOL_NAME_LIMIT - len(prefix) - 1 - len(digest)
    return f"{prefix}{re.sub('[^a-z0-9]', '-', spec_name)[:room]}-{digest}"


@dataclass(frozen=True)
class Claim:
    """Who holds a stock unit, and for which request. Two claims are the same only when both agree: an Operation's name
    can be given to another Operation in any other namespace."""

    holder: str
    """The unit (`namespace/name`); empty on stock that is only labelled as claimed."""

    operation: str
    """The name of the Operation, in the holder's namespace; or a mark that cannot be one."""

    @classmethod
    def of_operation(cls, operation: Json) -> Self:
        """The claim by which an Operation on a unit holds stock. The namespace is the Operation's own and not that in
        its spec: a name that is also another tenant's Operation holds nothing of that tenant."""
        metadata = operation["metadata"]
        return cls(names.claim_holder(metadata["namespace"], operation["spec"]["target"]["name"]), metadata["name"])

    @property
    def operation_key(self) -> str:
        """The Operation as `namespace/name`."""
        return f"{self.holder.partition('/')[0]}/{self.operation}"


def claim_of(stock: Json) -> Claim:
    """The claim that the stock's annotations name; both parts are empty on free stock."""
    annotations = annotations_of(stock)
    return Claim(
        annotations.get(names.ANNOTATION_CLAIMED_BY, ""),
        annotations.get(names.ANNOTATION_OPERATION_ID, ""),
    )


def is_claimed(stock: Json) -> bool:
    """Either mark is enough: the annotation is the claim, the label only its index."""
    label = labels_of(stock).get(names.LABEL_STOCK_STATE)
    return label == names.STOCK_CLAIMED or claim_holder_of(stock) is not None


def claim_holder_of(stock: Json) -> str | None:
    """The unit (`namespace/name`) for which this stock is held."""
    return claim_of(stock).holder or None


def claimed_at(item: Json, now: datetime) -> datetime | None:
    """When this stock, or the worker that took it over, was claimed."""
    return find_instant(item, names.ANNOTATION_CLAIMED_AT, now)


def is_from(unit: Json, stock: Json) -> bool:
    """Whether the unit was made from this very stock: pools use names again. Who made a unit by hand, and named its
    stock without the uid, is believed."""
    annotations = annotations_of(unit)
    is_named = annotations.get(names.ANNOTATION_SOURCE_STOCK_NAME) == stock["metadata"]["name"]
    return is_named and annotations.get(names.ANNOTATION_SOURCE_STOCK_UID) in (None, stock["metadata"]["uid"])


def is_available(stock: Json) -> bool:
    """Ready, free, and not on its way out."""
    return (
        not is_claimed(stock)
        and "deletionTimestamp" not in stock["metadata"]
        and stock.get("status", {}).get("phase") == Phase.READY
    )


def rank_stock(stock_units: Iterable[Json], spec_name: str) -> tuple[Json, ...]:
    """The stock that a claim for this spec may take, in the order to try it: oldest first, ties by name."""
    fitting = [unit for unit in stock_units if unit["spec"].get("specName") == spec_name and is_available(unit)]
    return tuple(sorted(fitting, key=lambda unit: (unit["metadata"]["creationTimestamp"], unit["metadata"]["name"])))
