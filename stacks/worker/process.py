"""The process of the stack worker: puts its parts together, runs them, and drains them on the way out."""

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta

from gpu_platform.clock import now_utc
from gpu_platform.controller.loop import ControllerLoop
from gpu_platform.controller.probes import (
    build_metrics_answers,
    build_probe_answers,
    find_unready,
    served,
)
from gpu_platform.domain.stacks import StackAddress
from gpu_platform.kube.connection import open_client
from gpu_platform.kube.fencing import GuardedClient, always_leading
from gpu_platform.kube.informer import WatchTiming
from gpu_platform.process import running
from gpu_platform.store.stack_leases import Holder
from providers.cluster.servicer import hosted
from stacks.runner import StackRunner
from stacks.runner.runner import build_runner_settings
from stacks.settings import StackWorkerSettings
from stacks.worker.audit import AuditController
from stacks.worker.controller import StacksController
from stacks.worker.metrics import WorkerMetrics
from stacks.worker.observe import StackWorld, key_of
from stacks.worker.previews import PreviewsController, tenant_lane

log = logging.getLogger(__name__)
COMPONENT = "gpu-platform-stack-worker"
PARENT_SECONDS = 1.0
PREVIEWS_AT_ONCE = 1

AUDITS_AT_ONCE = 1
"""Beside the recordings, which a crowd of them must not hold up."""

DRAIN_SECONDS = 15.0
"""For the runs under way to end by themselves; after it Pulumi is interrupted, and saves what it has done."""


async def run_worker(
    settings: StackWorkerSettings, environment: Mapping[str, str], *, parent: int | None = None
) -> None:
    """Until SIGTERM or SIGINT, or the end of `parent`. Any number of workers may run: a Lease per stack keeps them
    apart."""
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    runner_settings = build_runner_settings(settings, environment)
    longest_run = timedelta(seconds=runner_settings.longest_run)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await open_client(settings.kubeconfig, f"{COMPONENT}/{os.getpid()}"))
        metrics = WorkerMetrics()
        port = await stack.enter_async_context(hosted(client))
        runner = StackRunner(runner_settings, port)
        threads = settings.parallel + PREVIEWS_AT_ONCE + AUDITS_AT_ONCE
        executor = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="pulumi"))
        stack.callback(runner.stop)
        world = StackWorld(client, WatchTiming(settings.resync))
        writer = GuardedClient(client, always_leading(), metrics.count_write)
        controller = StacksController(
            world,
            writer,
            runner,
            executor,
            Holder(socket.gethostname(), os.getpid(), secrets.token_hex(4)),
            settings.lease_seconds,
            longest_run.total_seconds(),
            metrics,
            now_utc,
        )
        previews = PreviewsController(world, writer, runner, executor, longest_run, metrics, now_utc)
        recording = ControllerLoop(controller, controller.triggers(), workers=settings.parallel, metrics=metrics)

        def record_again(address: StackAddress) -> None:
            controller.doubt(address)
            recording.look_again(key_of(address))

        audit = AuditController(world, runner, executor, settings.audit_period, record_again, metrics)
        loops = (
            recording,
            ControllerLoop(
                previews, previews.triggers(), workers=PREVIEWS_AT_ONCE, metrics=metrics, lane_of=tenant_lane
            ),
            ControllerLoop(audit, audit.triggers(), workers=AUDITS_AT_ONCE, metrics=metrics),
        )
        for cache in world.caches:
            metrics.follow_cache(cache.name, cache)
        probes = await stack.enter_async_context(
            served(build_probe_answers(lambda: find_unready(world.caches)), settings.probe_address, "probeAddress")
        )
        scraped = await stack.enter_async_context(
            served(build_metrics_answers(metrics.render), settings.metrics_address, "metricsAddress")
        )
        log.info("worker.started", extra={"server": client.server, "probes": probes, "metrics": scraped})
        await stack.enter_async_context(running(cache.run() for cache in world.caches))
        if parent is not None:
            await stack.enter_async_context(running([_end_with(parent, stop_requested)]))
        await _work(loops, runner, stop_requested)
        log.info("worker.stopped")


async def _end_with(parent: int, stop_requested: asyncio.Event) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - no event tells of a parent's end
        await asyncio.sleep(PARENT_SECONDS)
    stop_requested.set()


async def _work(loops: Sequence[ControllerLoop], runner: StackRunner, stop_requested: asyncio.Event) -> None:
    """Until asked to stop: then no new stacks, time for those under way, and an interrupt for what is left."""
    work = {asyncio.create_task(loop.run()) for loop in loops}
    stopping = asyncio.create_task(stop_requested.wait())
    try:
        await asyncio.wait({*work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for loop in loops:
            loop.stop()
        _, late = await asyncio.wait(work, timeout=DRAIN_SECONDS)
        if late:
            # Its passes end with what Pulumi has saved, and give their Leases back.
            await asyncio.to_thread(runner.stop)
            await asyncio.wait(work, timeout=DRAIN_SECONDS)
    finally:
        stopping.cancel()
        for task in work:
            task.cancel()
        await asyncio.wait(work)
    for task in work:
        if not task.cancelled():
            task.result()
