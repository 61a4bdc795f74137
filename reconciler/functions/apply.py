"""Carries out a function's plan: its workers, and the status that counts them."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain

from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import Claim
from gpu_platform.domain.tenant_limits import describe_reached, parse_exceeded
from gpu_platform.kube import KubeError
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.store.unit_acquisition import Taken, claim_first, given_back_unless_written
from reconciler.expectations import OwnWrites, place_of
from reconciler.functions.observe import Observed
from reconciler.functions.plan import CreateWorker, Plan
from reconciler.functions.workers import build_worker, claim_mark
from reconciler.guarded_writes import CreateObject, apply_write


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
            if not isinstance(write, CreateWorker):
                own_writes.remember(*await apply_write(write, client))
            elif observed.spec is not None:
                await _create(write, observed.function, observed.spec, free, client, own_writes, now)
        except KubeError as error:
            if not error.is_refusal:
                raise
            refusal = refusal or describe_refusal(error)
    return refusal


def describe_refusal(refusal: KubeError) -> str:
    """What a tenant is told of a creation that the API server refused."""
    reached = parse_exceeded(refusal.message)
    return describe_reached(reached) if reached else refusal.message


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
            own_writes.remember(*await apply_write(CreateObject("GPUUnit", body), client))
    except KubeError as error:
        if not error.wrote_nothing:
            # It is unknown whether it was created: the next pass waits until the watch had time to show it.
            own_writes.remember(place_of("GPUUnit", body), None)
        raise


def _drain(free: list[Json]) -> Iterator[Json]:
    """Takes each stock unit out of the list as it is tried: no other worker of this pass tries it."""
    while free:
        yield free.pop(0)
