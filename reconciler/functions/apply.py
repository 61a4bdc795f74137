"""Carries out a function's plan: workers first, then the status that counts them."""

from datetime import datetime
from typing import Any, Protocol

from gpu_platform.adapters.claims import release_claim, try_claim
from gpu_platform.adapters.kube import AlreadyExistsError, KubeError
from gpu_platform.adapters.kube.paths import GPU_FUNCTIONS, GPU_UNITS
from gpu_platform.domain import names
from gpu_platform.domain.gpu_functions import GPUFunctionSpec
from reconciler.children import FIELD_MANAGER
from reconciler.functions.observed import Observed
from reconciler.functions.plan import CreateWorker, Plan, RemoveWorker, ReplaceWorker, status_of
from reconciler.functions.workers import build_worker, claim_mark
from reconciler.guarded_writes import delete_seen, patch_status
from reconciler.own_writes import OwnWrites, Place
from reconciler.writer import Writer

Json = dict[str, Any]

MANAGER = {"fieldManager": FIELD_MANAGER}


class Client(Writer, Protocol):
    """The guarded writes, and a look at the API server itself."""

    async def get(self, path: str, params: dict[str, str] | None = None) -> Json: ...


def place_of_unit(namespace: str, name: str) -> Place:
    return "GPUUnit", namespace, name


def place_of(function: Json) -> Place:
    return "GPUFunction", function["metadata"]["namespace"], function["metadata"]["name"]


async def apply_plan(plan: Plan, observed: Observed, client: Client, own_writes: OwnWrites, now: datetime) -> None:
    function = observed.function
    namespace = function["metadata"]["namespace"]
    free = list(observed.free)
    for write in plan.writes:
        match write:
            case RemoveWorker(unit):
                await delete_seen(client, GPU_UNITS, unit)
                own_writes.remember(place_of_unit(namespace, unit["metadata"]["name"]), unit)
            case ReplaceWorker(body):
                name = body["metadata"]["name"]
                await client.replace(GPU_UNITS.item(name, namespace), body, MANAGER)
                own_writes.remember(place_of_unit(namespace, name), body)
            case CreateWorker() if observed.spec is not None:
                if await _create(write, function, observed.spec, free, client, now):
                    name = names.worker_name(function["metadata"]["name"], write.ordinal)
                    own_writes.remember(place_of_unit(namespace, name), None)
    if await patch_status(client, GPU_FUNCTIONS, function, status_of(function), plan.status):
        own_writes.remember(place_of(function), function)


async def _create(
    write: CreateWorker, function: Json, spec: GPUFunctionSpec, free: list[Json], client: Client, now: datetime
) -> bool:
    """Whether it was made. Without stock it is not; what becomes free brings the next pass."""
    metadata = function["metadata"]
    holder = names.claim_holder(metadata["namespace"], names.worker_name(metadata["name"], write.ordinal))
    stock = await _claim(write.held, free, holder, function, client, now)
    if stock is None:
        return False
    body = build_worker(function, spec, write.ordinal, stock)
    try:
        await client.create(GPU_UNITS.collection(metadata["namespace"]), body, MANAGER)
    except AlreadyExistsError:
        await release_claim(client, stock, holder)
        raise
    except KubeError as error:
        if error.is_refusal:
            await release_claim(client, stock, holder)
        raise
    return True


async def _claim(
    held: tuple[Json, ...], free: list[Json], holder: str, function: Json, client: Client, now: datetime
) -> Json | None:
    # What is held is claimed once more: from now on it has another minute, and is not freed under our hands.
    for stock in held:
        if taken := await try_claim(client, stock, holder, claim_mark(function), now):
            return taken
    while free:
        if taken := await try_claim(client, free.pop(0), holder, claim_mark(function), now):
            return taken
    return None
