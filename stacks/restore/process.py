"""The whole restore: puts the parts together, lists, plans, and runs each stage when the cluster is ready for it.

Units wait for the stock whose place they take. Tenants' objects wait until Kubernetes counts them, because before that
it refuses to create any: on a cluster that was bootstrapped a moment ago, its quota controller does not know the
platform's kinds yet.
"""

import asyncio
import os
import secrets
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from gpu_platform.clock import now_utc
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import STOCK_NAMESPACE
from gpu_platform.domain.stacks import StackAddress, StackKind
from gpu_platform.domain.stock import rank_stock
from gpu_platform.domain.tenant_limits import QUOTA, is_counted
from gpu_platform.kube import KubeClient, UnreachableError
from gpu_platform.kube.connection import open_client
from gpu_platform.kube.errors import KubeError
from gpu_platform.kube.paths import RESOURCE_QUOTAS, STOCK_POOLS
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.store.stack_leases import Holder
from gpu_platform.store.unit_acquisition import list_free_stock
from providers.cluster.servicer import hosted
from stacks.restore.apply import StackRestorer
from stacks.restore.observe import MisusedError, list_addresses, read_all, take_snapshot
from stacks.restore.plan import (
    RUNS,
    STAGES,
    Action,
    Kept,
    NotKept,
    Outcome,
    Result,
    Step,
    choose,
    outcome_of,
    plan_restore,
)
from stacks.restore.report import Telling
from stacks.runner import StackRunner
from stacks.runner.runner import build_runner_settings
from stacks.settings import StackWorkerSettings

STOCK_LOOK_SECONDS = 0.5

STALL_SECONDS = 20.0
"""Without one more free unit of stock: no more will come soon. On an idle machine a pool makes several in a second."""

COUNTS_LOOK_SECONDS = 1.0

SILENT_SECONDS = 30.0
"""Without an answer to the question: long enough for an API server that is restarted."""

COUNTED_SECONDS = 7 * 60.0
"""The quota controller looks for new kinds every 30 s and counts them with its next full pass, every five minutes."""

T = TypeVar("T")
COMPONENT = "gpu-platform-restore"

WORDS = {
    StackKind.STOCK_POOL: "pools",
    StackKind.GPU_STORAGE: "storages",
    StackKind.GPU_FUNCTION: "functions",
    StackKind.GPU_UNIT: "units",
}


async def wait_for_stock(
    client: ObjectClient, units: Iterable[Kept], telling: Telling, clock: Callable[[], float] = time.monotonic
) -> int:
    """How many units will have to do without. A pool gives no more than it holds: what it makes when some of it was
    taken comes while the units are made."""
    needed = Counter(kept.spec_name for kept in units if kept.runs and kept.spec_name is not None)
    wanted = count_wanted(needed, (await client.get(STOCK_POOLS.collection(STOCK_NAMESPACE)))["items"])
    total, best, grown_at = sum(wanted.values()), 0, clock()
    telling.begin("stock", total)
    while True:
        there = sum([min(count, len(await _list_ready(client, spec))) for spec, count in wanted.items()])
        if there > best:
            best, grown_at = there, clock()
            telling.advance(there)
        if there >= total or clock() - grown_at > STALL_SECONDS:
            return sum(needed.values()) - there
        await asyncio.sleep(STOCK_LOOK_SECONDS)


def count_wanted(needed: Counter[str], pools: Iterable[Json]) -> Counter[str]:
    """By GPUSpec: as much as is needed, and no more than the pools hold."""
    held: Counter[str] = Counter()
    for pool in pools:
        held[pool["spec"]["specName"]] += pool["spec"]["replicas"]
    return Counter({spec: min(count, held[spec]) for spec, count in needed.items() if held[spec]})


async def _list_ready(client: ObjectClient, spec_name: str) -> tuple[Json, ...]:
    return rank_stock(await list_free_stock(client, spec_name), spec_name)


async def wait_for_counts(client: ObjectClient, telling: Telling, clock: Callable[[], float] = time.monotonic) -> None:
    """Waits until the objects of every tenant are counted; gives up, and says so, when that takes too long."""
    counted_by = clock() + COUNTED_SECONDS
    heard_by = clock() + SILENT_SECONDS
    is_told = False
    while True:
        try:
            uncounted = await _list_uncounted(client)
        except KubeError as error:
            problem = f"the ResourceQuotas {QUOTA} cannot be listed ({error})"
            is_over = error.is_refusal or clock() >= heard_by
        else:
            if not uncounted:
                return
            heard_by = clock() + SILENT_SECONDS
            problem = f"Kubernetes does not count the objects in {', '.join(uncounted)} yet"
            is_over = clock() >= counted_by
        if is_over:
            telling.say(f"{problem}: goes on, and what is refused now is left to another restore")
            return
        if not is_told:
            telling.say("waits until Kubernetes counts the objects of tenants; on a new cluster this takes minutes")
            is_told = True
        await asyncio.sleep(COUNTS_LOOK_SECONDS)


async def _list_uncounted(client: ObjectClient) -> list[str]:
    """The namespaces of tenants whose objects are not counted yet."""
    params = {"fieldSelector": f"metadata.name={QUOTA}"}
    quotas = (await client.get(RESOURCE_QUOTAS.collection(), params))["items"]
    return sorted(quota["metadata"]["namespace"] for quota in quotas if not is_counted(quota))


@dataclass(frozen=True)
class Wish:
    only: tuple[str, ...] = ()
    dry_run: bool = False
    break_locks: bool = False


@dataclass(frozen=True)
class Planned:
    """Every chosen stack with what is to be done about it."""

    kept: dict[StackAddress, Kept | NotKept]
    steps: dict[StackAddress, Step]

    def list_runs(self, kind: StackKind) -> list[Kept]:
        return [
            kept
            for address, kept in self.kept.items()
            if address.kind is kind and self.steps[address].action in RUNS and isinstance(kept, Kept)
        ]


async def restore(
    settings: StackWorkerSettings, environment: Mapping[str, str], wish: Wish, telling: Telling
) -> tuple[Planned, list[Outcome]]:
    """What was planned, and what became of it; nothing did in a dry run."""
    runner_settings = build_runner_settings(settings, environment)
    backend_url = runner_settings.backend_url
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await open_client(settings.kubeconfig, f"{COMPONENT}/{os.getpid()}"))
        snapshot = await take_snapshot(client)
        port = await stack.enter_async_context(hosted(client))
        runner = StackRunner(runner_settings, port)
        executor = stack.enter_context(ThreadPoolExecutor(settings.parallel, thread_name_prefix="pulumi"))
        stack.callback(runner.stop)
        telling.say(f"from {backend_url} into {client.server}")
        listed = await asyncio.to_thread(list_addresses, runner, executor, backend_url)
        chosen = choose(listed, wish.only)
        if wish.only and not chosen:
            raise MisusedError(f"none of the {len(listed)} stacks in {backend_url} is called {' or '.join(wish.only)}")
        read = await asyncio.to_thread(read_all, runner, executor, chosen, runner_settings.passphrase)
        kept = {address: snapshot.recall(address, each) for address, each in read.items()}
        planned = Planned(kept, {address: plan_restore(snapshot.observe(address, kept[address])) for address in chosen})
        if wish.dry_run:
            return planned, []
        interrupted = await stack.enter_async_context(_taking_signals(runner))
        restorer = StackRestorer(
            client,
            runner,
            executor,
            snapshot,
            Holder(socket.gethostname(), os.getpid(), secrets.token_hex(4)),
            settings.lease_seconds,
            runner_settings.longest_run,
            now_utc,
            interrupted,
            break_locks=wish.break_locks,
        )
        return planned, await _Work(client, restorer, telling, interrupted, settings.parallel).do(planned)


class _Work:
    def __init__(
        self,
        client: KubeClient,
        restorer: StackRestorer,
        telling: Telling,
        interrupted: asyncio.Event,
        parallel: int,
    ) -> None:
        self._client = client
        self._restorer = restorer
        self._telling = telling
        self._interrupted = interrupted
        self._parallel = parallel
        self._lost: str | None = None
        """Why the rest is not tried."""

    async def do(self, planned: Planned) -> list[Outcome]:
        done = {
            address: outcome_of(address, step) for address, step in planned.steps.items() if step.action not in RUNS
        }
        if any(planned.list_runs(kind) for kind in STAGES if kind is not StackKind.STOCK_POOL):
            await self._until_interrupted(wait_for_counts(self._client, self._telling))
        for kind in STAGES:
            runs = planned.list_runs(kind)
            if kind is StackKind.GPU_UNIT:
                await self._wait_for_stock(
                    [kept for kept in runs if planned.steps[kept.intent.address].action is Action.MAKE]
                )
            for outcome in await self._run(kind, runs):
                done[outcome.address] = outcome
        return [done[address] for address in planned.steps]

    async def _run(self, kind: StackKind, runs: Sequence[Kept]) -> list[Outcome]:
        if not runs:
            return []
        self._telling.begin(WORDS[kind], len(runs))
        outcomes: list[Outcome] = []
        rest = iter(runs)
        await asyncio.gather(*(self._take_from(rest, outcomes) for _ in range(min(self._parallel, len(runs)))))
        return outcomes

    async def _take_from(self, rest: Iterator[Kept], outcomes: list[Outcome]) -> None:
        for kept in rest:
            outcome = await self._restore(kept)
            outcomes.append(outcome)
            if outcome.result is Result.FAILED:
                self._telling.say(f"{outcome.address.full_name}: {outcome.reason}")
            self._telling.advance(len(outcomes))

    async def _restore(self, kept: Kept) -> Outcome:
        address = kept.intent.address
        if self._interrupted.is_set():
            return Outcome(address, Result.INTERRUPTED, "not begun; restore again to go on")
        if self._lost is not None:
            return Outcome(address, Result.FAILED, f"not tried: {self._lost}")
        try:
            return await self._restorer.restore(kept)
        except UnreachableError as error:
            self._lost = f"the API server {self._client.server} cannot be reached: {error.message}"
            return Outcome(address, Result.FAILED, self._lost)
        except KubeError as error:
            return Outcome(address, Result.FAILED, str(error))

    async def _wait_for_stock(self, units: Sequence[Kept]) -> None:
        if not any(kept.runs for kept in units) or self._interrupted.is_set() or self._lost is not None:
            return
        if lacking := await self._until_interrupted(wait_for_stock(self._client, units, self._telling)):
            self._telling.say(
                f"{lacking} units find no stock now; those that do not get any later are made without, and run "
                "once their GPUs are free"
            )

    async def _until_interrupted(self, wait: Coroutine[Any, Any, T]) -> T | None:
        """Returns what was waited for; None when the restore was interrupted, or the API server did not answer: what
        needs the API server next reports that."""
        waiting = asyncio.create_task(wait)
        stopping = asyncio.create_task(self._interrupted.wait())
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not waiting.done():
            waiting.cancel()
            return None
        with suppress(KubeError):
            return waiting.result()
        return None


@asynccontextmanager
async def _taking_signals(runner: StackRunner) -> AsyncIterator[asyncio.Event]:
    """Set once somebody wants an end. Pulumi is interrupted then, saves, and the Leases are given back."""
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Future[None]] = set()

    def stop() -> None:
        if not interrupted.is_set():
            interrupted.set()
            stopping.add(asyncio.ensure_future(asyncio.to_thread(runner.stop)))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield interrupted
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        if stopping:
            await asyncio.wait(stopping)
