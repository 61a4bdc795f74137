"""P1: how long accepting a unit takes, against three bare writes; and what stays of it in company."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice

from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.stock import claim_holder_of, claim_of
from gpu_platform.domain.tenants import DEFAULT_TENANT, tenant_namespace
from gpu_platform.domain.units import EnvVar, Template, UnitRequest
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, NAMESPACES, OPERATIONS
from gpu_platform.store.unit_acquisition import release_claim
from tests.bench.bare_writes import BareWrites, prepare_bare_writes
from tests.bench.figures import Figure, Goal, p50, p99
from tests.bench.reconciler_process import nothing_is_written, reconciler_asleep
from tests.bench.rest import Rest, open_rest
from tests.bench.workloads import TINY_SPEC, Bench
from tests.support.api import UNITS
from tests.support.units_and_stock import INSTANCES, create_unit, stock_of, stock_pool, unit_body
from tests.support.waiting import eventually

POOL = "p1"
POSTS = 150
STOCK_UNITS = 160
"""A few more than are taken at once: a claim that meets a write of the reconciler goes on to the next one."""

CLIENTS = (1, 8, 32)

PAGE = 100
"""Units of a page when the caller does not say how many."""

CROWD = 5_000
CROWD_TENANT = "crowd"
CREATORS = 40
DELETE_SECONDS = 120.0


@dataclass(frozen=True)
class Turns:
    """What was measured by turns: one of ours, one bare."""

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return p50(self.ours) / p50(self.bare)


@dataclass(frozen=True)
class Load:
    """So many clients, each sending the next request when the last one is answered."""

    clients: int
    seconds: list[float]
    elapsed: float

    @property
    def per_second(self) -> float:
        return len(self.seconds) / self.elapsed


@dataclass(frozen=True)
class Measured:
    loads: tuple[Load, ...]
    alone: Turns
    """While the reconciler sleeps: the API itself."""

    one: Turns
    page: Turns
    crowded: Turns
    """As alone, with the units of another tenant."""

    at_work: Turns
    """While the reconciler hands off what was accepted before: the product."""


async def measure_accept(bench: Bench) -> list[Figure]:
    kube = bench.kube
    stock_spec = {"specName": TINY_SPEC, "replenish": "Never"}
    async with open_rest(bench.record) as rest:
        async with stock_pool(kube, POOL, STOCK_UNITS, **stock_spec):
            site = Site(kube, rest, await prepare_bare_writes(kube, (await stock_of(kube, POOL))[0]))
            await nothing_is_written(bench)
            async with reconciler_asleep(bench):
                loads = []
                for clients in CLIENTS:
                    loads.append(await site.time_load(clients))
                    await site.clear()
                alone = await site.take_turns()
                one, page = await site.time_reads()
                await site.clear()
                async with crowd(kube, rest):
                    bench.say(f"{CROWD} units of another tenant are there")
                    crowded = await site.take_turns()
                    await site.clear()
            await nothing_is_written(bench)
            at_work = await site.take_turns()
            await nothing_is_written(bench)
        # After the pool, which would take them back.
        await site.remove_accepted()
        await nothing_is_written(bench)
    return build_figures(Measured(tuple(loads), alone, one, page, crowded, at_work))


def build_figures(measured: Measured) -> list[Figure]:
    at_work, alone, crowded = measured.at_work, measured.alone, measured.crowded
    goal = Goal(3.0, of_ratio=True)
    return [
        _compare("POST of a unit, 1 client, p50 ÷ three bare writes", at_work, goal),
        _compare("  the same while the reconciler sleeps", alone),
        _compare(f"  and with {CROWD:,} units of another tenant", crowded),
        Figure(
            "P1",
            f"  ratio with {CROWD:,} units ÷ ratio without",
            crowded.ratio,
            "",
            len(crowded.ours),
            alone.ratio,
            Goal(1.3, of_ratio=True),
        ),
        _compare("  GET of a unit, p50 ÷ bare GET", measured.one),
        _compare(f"  GET of {PAGE} units, p50 ÷ bare list", measured.page),
        *(figure for load in measured.loads for figure in _describe(load)),
    ]


def _compare(what: str, turns: Turns, goal: Goal | None = None) -> Figure:
    return Figure("P1", what, p50(turns.ours), "s", len(turns.ours), p50(turns.bare), goal)


def _describe(load: Load) -> Iterator[Figure]:
    who = f"  POST, {load.clients} client{'s' if load.clients > 1 else ''}"
    yield Figure("P1", f"{who}, p50", p50(load.seconds), "s", len(load.seconds))
    yield Figure("P1", f"{who}, p99", p99(load.seconds), "s", len(load.seconds))
    yield Figure("P1", f"{who}, accepted per second", load.per_second, "/s", len(load.seconds))


class Site:
    """The pool, who takes from it, and what was accepted from it so far."""

    def __init__(self, kube: KubeClient, rest: Rest, bare: BareWrites) -> None:
        self._kube = kube
        self._rest = rest
        self._bare = bare
        self._requests = _number_requests()
        self._accepted: list[str] = []

    async def take_turns(self) -> Turns:
        """So that whatever else loads the machine meets both alike."""
        turns = Turns()
        for request in self._next(POSTS):
            turns.ours.append(await self._rest.time_post(request))
            turns.bare.append(await self._bare.time(request))
        return turns

    async def time_load(self, clients: int) -> Load:
        waiting = iter(self._next(POSTS))
        seconds: list[float] = []

        async def send_in_turn() -> None:
            seconds.extend([await self._rest.time_post(request) for request in waiting])

        started_at = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(send_in_turn())
        return Load(clients, seconds, time.perf_counter() - started_at)

    async def time_reads(self) -> tuple[Turns, Turns]:
        """One unit after the other, and pages of them; each asked of the API and of the API server."""
        one, page = Turns(), Turns()
        bare_page = f"{GPU_UNITS.collection(INSTANCES)}?limit={PAGE}"
        for name in self._accepted:
            one.ours.append(await self._rest.time_get(f"{UNITS}/{name}"))
            one.bare.append(await self._time_bare_get(GPU_UNITS.item(name, INSTANCES)))
            page.ours.append(await self._rest.time_get(UNITS))
            page.bare.append(await self._time_bare_get(bare_page))
        return one, page

    async def clear(self) -> None:
        """While the reconciler sleeps nothing was handed off: the same stock can be taken again."""
        await self.remove_accepted()
        claimed = [stock for stock in await stock_of(self._kube, POOL) if claim_holder_of(stock)]
        await asyncio.gather(*(release_claim(self._kube, each, claim_of(each)) for each in claimed))

        async def is_known() -> bool:
            wanted = {"pool": POOL, "state": "available"}
            return len(await self._rest.get("/api/v1/operator/stock-units", wanted)) == STOCK_UNITS

        await eventually(is_known)

    async def remove_accepted(self) -> None:
        operations = [operation_name(DEFAULT_TENANT, f"op-{name}") for name in self._accepted]
        await asyncio.gather(
            *(self._kube.delete(GPU_UNITS.item(name, INSTANCES)) for name in self._accepted),
            *(self._kube.delete(OPERATIONS.item(name, INSTANCES)) for name in operations),
        )
        await eventually(self._is_empty, within=60)
        self._accepted.clear()

    async def _time_bare_get(self, path: str) -> float:
        started_at = time.perf_counter()
        await self._kube.get(path)
        return time.perf_counter() - started_at

    def _next(self, number: int) -> Iterable[UnitRequest]:
        requests = list(islice(self._requests, number))
        self._accepted += [request.name for request in requests]
        return requests

    async def _is_empty(self) -> bool:
        """A unit that the reconciler has seen goes after its children."""
        there = {unit["metadata"]["name"] for unit in (await self._kube.get(GPU_UNITS.collection(INSTANCES)))["items"]}
        return there.isdisjoint(self._accepted)


@asynccontextmanager
async def crowd(kube: KubeClient, rest: Rest) -> AsyncIterator[None]:
    """The units of another tenant, all of them known to the API. Stopped, and only there while the reconciler sleeps:
    their Deployments would take minutes and change nothing for the API."""
    namespace = tenant_namespace(CROWD_TENANT)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await kube.create(NAMESPACES.collection(), body)
    numbers = iter(range(CROWD))

    async def create_in_turn() -> None:
        for number in numbers:
            unit = unit_body(f"crowd-{number}", namespace=namespace, specName=TINY_SPEC, running=False)
            await create_unit(kube, unit)

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(create_in_turn())

    async def is_known() -> bool:
        return bool((await rest.get("/api/v1/health"))["activeUnitCount"] >= CROWD)

    await eventually(is_known)
    try:
        yield
    finally:
        await kube.delete(GPU_UNITS.collection(namespace), timeout=DELETE_SECONDS)


def _number_requests() -> Iterator[UnitRequest]:
    number = 0
    template = Template(envs=(EnvVar(name="MODEL", value="small"),))
    while True:
        yield UnitRequest(name=f"p1-{number}", spec_name=TINY_SPEC, image="example/train", template=template)
        number += 1
