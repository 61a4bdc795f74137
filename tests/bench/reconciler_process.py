"""The reconciler as a process: what it counts, when it has come to rest, and how it is started anew."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from gpu_platform.devcluster.record import LOOPBACK, ProcessStatus, read_status
from tests.bench.workloads import Bench
from tests.support.waiting import eventually

QUIET_SECONDS = 1.0
"""Without a write, after which whatever was under way is at its end: between two writes that belong together the
reconciler pauses at most for its first retry, a tenth of that."""

PASS_SECONDS = 60.0
"""For a new process to start, to lead and to look at everything; about 5 s for a thousand units."""

PREFIX = "gpu_platform_reconciler"
OBJECTS_OF = {"units": "gpuunits", "stock": "stockpools"}
"""Controllers that pass over every object of a kind."""


async def nothing_is_written(bench: Bench) -> None:
    """Wait until the reconciler has come to rest."""

    async def is_quiet() -> bool:
        log = bench.audit_from_here()
        await asyncio.sleep(QUIET_SECONDS)
        return not log.writes()

    await eventually(is_quiet, within=60)


@asynccontextmanager
async def reconciler_asleep(bench: Bench) -> AsyncIterator[None]:
    """It is there, but does nothing; afterwards it leads again, with nothing left to do."""
    pid = _find_pid(bench)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)

    async def is_back() -> bool:
        counted = await _read_metrics(bench)
        return counted["is_leader"] == 1 and counted["queue_length"] == 0

    await eventually(is_back, within=PASS_SECONDS, every=0.2)
    await nothing_is_written(bench)


async def restart_reconciler(bench: Bench) -> None:
    """End it in good order; the supervisor starts the next one, which knows nothing of what was done before."""
    old = _find_process(bench)
    os.kill(_find_pid(bench), signal.SIGTERM)

    async def another_is_ready() -> bool:
        new = _find_process(bench)
        return new.state == "ready" and new.pid != old.pid

    await eventually(another_is_ready, within=PASS_SECONDS)


async def everything_is_passed(bench: Bench) -> int:
    """Wait until a new reconciler has looked at everything there is; the number of its passes over units."""

    async def has_passed() -> Counter[str] | None:
        counted = await _read_metrics(bench)
        return counted if _is_through(counted) else None

    counted = await eventually(has_passed, within=PASS_SECONDS, every=0.2)
    await nothing_is_written(bench)
    return counted["passes units"]


def _is_through(counted: Mapping[str, int]) -> bool:
    return (
        counted["is_leader"] == 1
        and counted["queue_length"] == 0
        and counted["passes orphans"] >= 1
        and all(counted[f"passes {name}"] >= counted[f"cached {kind}"] for name, kind in OBJECTS_OF.items())
    )


async def _read_metrics(bench: Bench) -> Counter[str]:
    url = f"http://{LOOPBACK}:{bench.record.ports['reconciler-metrics']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        text = await response.text()
    counted: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            match sample.name.removeprefix(f"{PREFIX}_"):
                case "passes_total":
                    counted[f"passes {sample.labels['controller']}"] += int(sample.value)
                case "cache_objects":
                    counted[f"cached {sample.labels['resource']}"] += int(sample.value)
                case "queue_length" | "is_leader" as name:
                    counted[name] += int(sample.value)
    return counted


def _find_pid(bench: Bench) -> int:
    pid = _find_process(bench).pid
    if pid is None:
        raise RuntimeError("the reconciler does not run")
    return pid


def _find_process(bench: Bench) -> ProcessStatus:
    [process] = [each for each in read_status(bench.directory).processes if each.name == "reconciler"]
    return process
