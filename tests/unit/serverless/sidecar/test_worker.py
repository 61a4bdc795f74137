"""How long a worker and a sidecar take to end, or to take no more calls, in virtual time."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_platform.nats.connection import JetStream
from gpu_platform.nats.deliveries import REQUEST_SECONDS
from gpu_platform.nats.records import Records
from serverless.sidecar import worker as worker_module
from serverless.sidecar.drain import LOOK_SECONDS, Shifts
from serverless.sidecar.framework_client import FrameworkClient
from serverless.sidecar.worker import Worker, WorkerSettings
from tests.support.builders import NOW
from tests.support.virtual_time import now, run_in_virtual_time

SLOTS = 256
LONG = 30.0


class Framework:
    def __init__(self) -> None:
        self.is_there = True
        self.number = 1

    async def is_ready(self) -> bool:
        return self.is_there

    def identity(self) -> tuple[int, int]:
        return self.number, 0

    seems_ready = is_ready


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the queue was asked for a call. None ever comes."""
    asked: list[float] = []

    async def take_none(*_: Any) -> None:
        asked.append(now())
        await asyncio.sleep(REQUEST_SECONDS)

    monkeypatch.setattr(worker_module, "take_call", take_none)
    return asked


def make_worker(framework: Framework) -> Worker:
    settings = WorkerSettings("acme", "words", "worker", SLOTS, 3, timedelta(seconds=30), started_at=NOW)
    records = cast(Records, SimpleNamespace(retention=timedelta(hours=1)))
    return Worker(cast(JetStream, None), records, cast(FrameworkClient, framework), settings, lambda: NOW)


def test_a_worker_that_has_nothing_to_do_ends_with_the_request_under_way(requests: list[float]) -> None:
    async def stop_it() -> tuple[float, float]:
        worker = make_worker(Framework())
        working = asyncio.create_task(worker.run())
        await asyncio.sleep(10.1)
        told_at = now()
        worker.stop()
        await working
        return told_at, now()

    told_at, ended_at = run_in_virtual_time(stop_it())

    assert ended_at - told_at <= REQUEST_SECONDS <= 0.5
    assert max(requests) <= told_at
    # One at a time, whatever the slots.
    assert len(set(requests)) == len(requests)


@pytest.mark.parametrize("away_seconds", [2 * LOOK_SECONDS, 0.0], ids=["seen away", "restarted between two looks"])
def test_one_that_is_drained_takes_no_calls_until_there_is_another_framework(
    requests: list[float], away_seconds: float
) -> None:
    async def drain_it() -> tuple[float, float, float]:
        framework = Framework()
        js = cast(JetStream, SimpleNamespace(_nc=SimpleNamespace(is_closed=False, is_connected=True)))
        shifts = Shifts(cast(FrameworkClient, framework), lambda _: make_worker(framework))
        running = asyncio.create_task(shifts.run(js))
        await asyncio.sleep(10.1)
        told_at = now()
        assert await shifts.drain()
        drained_at = now()
        await asyncio.sleep(LONG)
        assert not await shifts.is_ready()
        if away_seconds:
            framework.is_there = False
        else:
            framework.number = 2
        await asyncio.sleep(away_seconds)
        framework.is_there, back_at = True, now()
        await asyncio.sleep(1)
        assert await shifts.is_ready()
        shifts.stop()
        await running
        return told_at, drained_at, back_at

    told_at, drained_at, back_at = run_in_virtual_time(drain_it())

    assert drained_at - told_at <= REQUEST_SECONDS
    assert not [at for at in requests if told_at < at < back_at]
    assert [at for at in requests if at >= back_at]
