"""Carries out a function's plan: its workers, and the status that counts them."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain

from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionSpec, GPUFunctionStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.limits import describe_reached, parse_exceeded
from gpu_platform.domain.stock import Claim
from gpu_platform.kube import KubeError
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_UNITS
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.store.unit_acquisition import Taken, claim_first, given_back_unless_written
from reconciler.child_diff import MANAGER
from reconciler.expectations import OwnWrites, Place
from reconciler.functions.observe import Observed
from reconciler.functions.plan import CreateWorker, Plan, RemoveWorker, ReplaceWorker, Write, status_of
from reconciler.functions.workers import build_worker, claim_mark
from reconciler.guarded_writes import delete_seen, patch_status


def place_of_unit(namespace: str, name: str) -> Place:
    return "GPUUnit", namespace, name


def place_of(function: Json) -> Place:
    return "GPUFunction", function["metadata"]["namespace"], function["metadata"]["name"]


async def apply_workers(
    plan: Plan, observed: Observed, client: ObjectClient, own_writes: OwnWrites, now: Callable[[], datetime]
) -> str | None:
    """What the API server said when it refused one; None if it took them all. After a refusal no other is made: it
    would be refused as well."""
    free = list(observed.free)
    refusal: str | None = None
    for write in plan.writes:
        if refusal is not None and isinstance(write, CreateWorker):
            continue
        try:
            await _apply(write, observed, free, client, own_writes, now)
        except KubeError as error:
            if not error.is_refusal:
                raise
            refusal = refusal or describe_refusal(error)
    return refusal


def describe_refusal(refusal: KubeError) -> str:
    """What a tenant is told of a creation that the API server refused."""
    reached = parse_exceeded(refusal.message)
    return describe_reached(reached) if reached else refusal.message


async def apply_status(status: GPUFunctionStatus, function: Json, client: ObjectClient, own_writes: OwnWrites) -> None:
    if await patch_status(client, GPU_FUNCTIONS, function, status_of(function), status):
        own_writes.remember(place_of(function), function)


async def _apply(
    write: Write,
    observed: Observed,
    free: list[Json],
    client: ObjectClient,
    own_writes: OwnWrites,
    now: Callable[[], datetime],
) -> None:
    namespace = observed.function["metadata"]["namespace"]
    match write:
        case RemoveWorker(unit):
            await delete_seen(client, GPU_UNITS, unit)
            own_writes.remember(place_of_unit(namespace, unit["metadata"]["name"]), unit)
        case ReplaceWorker(body):
            name = body["metadata"]["name"]
            await client.replace(GPU_UNITS.item(name, namespace), body, MANAGER)
            own_writes.remember(place_of_unit(namespace, name), body)
        case CreateWorker() if observed.spec is not None:
            await _create(write, observed.function, observed.spec, free, client, own_writes, now)


async def _create(
    write: CreateWorker,
    function: Json,
    spec: GPUFunctionSpec,
    free: list[Json],
    client: ObjectClient,
    own_writes: OwnWrites,
    now: Callable[[], datetime],
) -> None:
    """Without stock it is not made; what becomes free brings the next pass."""
    namespace = function["metadata"]["namespace"]
    name = names.worker_name(function["metadata"]["name"], write.ordinal)
    claim = Claim(names.claim_holder(namespace, name), claim_mark(function))
    woken_at = now()
    stock = await claim_first(client, chain(write.held, _drain(free)), claim, woken_at)
    if stock is None:
        return
    body = build_worker(function, spec, write.ordinal, stock, woken_at=woken_at, claimed_at=now())
    try:
        async with given_back_unless_written(client, Taken(stock, claim)):
            await client.create(GPU_UNITS.collection(namespace), body, MANAGER)
    except KubeError as error:
        if not error.wrote_nothing:
            # It is unknown whether it was created: the next pass waits until the watch had time to show it.
            own_writes.remember(place_of_unit(namespace, name), None)
        raise
    own_writes.remember(place_of_unit(namespace, name), None)


def _drain(free: list[Json]) -> Iterator[Json]:
    """Takes each stock unit out of the list as it is tried: no other worker of this pass tries it."""
    while free:
        yield free.pop(0)
