"""The reconciler's process: puts the parts together, runs the loops while it leads, and ends them in order."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Protocol

from gpu_platform.controller.leader_election import LeaderElector, Leadership, LeaseTiming, always_leading
from gpu_platform.controller.metrics import Metrics
from gpu_platform.controller.probes import build_metrics_answers, build_probe_answers, find_unready, served
from gpu_platform.kube.client import KubeClient
from gpu_platform.kube.connection import open_client
from gpu_platform.kube.events import EventRecorder
from gpu_platform.kube.fencing import GuardedClient
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.process import running
from reconciler.settings import ReconcilerSettings

log = logging.getLogger(__name__)
COMPONENT = "gpu-platform-reconciler"
METRICS = "gpu_platform_reconciler"

STOP_SECONDS = 10.0
"""For the passes under way to end. Pods get 30 s in Kubernetes, and the lease is given back after this."""


class Loop(Protocol):
    """What is done while this process leads."""

    async def run(self) -> None: ...

    def stop(self) -> None:
        """Begin nothing more; `run` ends when what is under way has ended."""


BuildLoops = Callable[
    [KubeClient, GuardedClient, EventRecorder, ReconcilerSettings, Metrics],
    tuple[Sequence[ObjectCache], Sequence[Loop]],
]


async def run_reconciler(settings: ReconcilerSettings, build_loops: BuildLoops) -> None:
    """Until SIGTERM or SIGINT. Every candidate follows the API server, so that a new leader can act at once."""
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await open_client(settings.kubeconfig, f"{COMPONENT}/{os.getpid()}"))
        metrics = Metrics(METRICS)
        timing = LeaseTiming.lasting(timedelta(seconds=settings.lease_seconds))
        elector = LeaderElector(client, settings.lease_namespace, settings.lease_name, timing=timing)
        leadership = elector.leadership if settings.leader_elect else always_leading()
        writer = GuardedClient(client, leadership, metrics.count_write)
        caches, loops = build_loops(client, writer, EventRecorder(writer, COMPONENT), settings, metrics)
        metrics.follow_leadership(lambda: leadership.is_leader)
        for cache in caches:
            metrics.follow_cache(cache.name, cache)
        probes = await stack.enter_async_context(
            served(build_probe_answers(lambda: find_unready(caches)), settings.probe_address, "probeAddress")
        )
        scraped = await stack.enter_async_context(
            served(build_metrics_answers(metrics.render), settings.metrics_address, "metricsAddress")
        )
        log.info("reconciler.started", extra={"server": client.server, "probes": probes, "metrics": scraped})
        await stack.enter_async_context(running(cache.run() for cache in caches))

        async def run_loops(_: Leadership) -> None:
            async with asyncio.TaskGroup() as group:
                for loop in loops:
                    group.create_task(loop.run())

        async def lead() -> None:
            # All of them, and before the election: who sees only a part of the world shall not lead.
            for cache in caches:
                await cache.wait_synced()
            await (elector.run(run_loops) if settings.leader_elect else run_loops(leadership))

        def is_working() -> bool:
            return leadership.is_leader and all(cache.is_synced for cache in caches)

        await _run_until(stop_requested, lead(), is_working, loops)
        log.info("reconciler.stopped")


async def _run_until(
    stop_requested: asyncio.Event,
    lead: Coroutine[Any, Any, None],
    is_working: Callable[[], bool],
    loops: Sequence[Loop],
) -> None:
    """Lead, or wait to lead. On request: no new passes, time for those under way, then the end."""
    task = asyncio.create_task(lead)
    stopping = asyncio.create_task(stop_requested.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and is_working():
            for loop in loops:
                loop.stop()
            await asyncio.wait({task}, timeout=STOP_SECONDS)
    finally:
        stopping.cancel()
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.result()


class WhileLeading:
    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Until `stop`, failure or cancellation; again in every term."""
        async with running([self._work()]):
            await self._stopped.wait()

    def stop(self) -> None:
        """For good."""
        self._stopped.set()
