"""The sidecar between a framework that comes and goes and a NATS that is not always there."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain.invocations import InvocationState
from gpu_platform.nats.credentials import mint_sidecar
from tests.architecture.repository import ROOT
from tests.support.daemons import Daemon
from tests.support.function_workers import GATED
from tests.support.waiting import eventually
from tests.support.worker_ground import ACK_SECONDS, FUNCTION, WorkerGround, open_worker_ground, says_queue_away


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[WorkerGround]:
    async with open_worker_ground(tmp_path) as ground:
        yield ground


async def door_of(sidecar: Daemon) -> httpx.AsyncClient:
    port = (await sidecar.says("sidecar.started"))["health_port"]
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30)


async def answers(door: httpx.AsyncClient, path: str, status: int) -> None:
    async def is_so() -> bool:
        return (await door.get(path)).status_code == status

    await eventually(is_so)


async def test_it_is_ready_when_nats_and_framework_are(ground: WorkerGround) -> None:
    async with AsyncExitStack() as stack:
        sidecar = await stack.enter_async_context(ground.place.sidecar())
        door = await stack.enter_async_context(await door_of(sidecar))
        await sidecar.says("sidecar.connected")
        assert (await door.get("/healthz")).status_code == 200
        assert (await door.get("/readyz")).status_code == 503
        async with ground.place.framework():
            await answers(door, "/readyz", 200)
            ground.server.kill()
            await answers(door, "/readyz", 503)
            assert (await door.get("/healthz")).status_code == 200
            await ground.server.start()
            await answers(door, "/readyz", 200)


async def test_one_that_is_drained_finishes_its_call_and_begins_again_with_the_next_framework(
    ground: WorkerGround,
) -> None:
    place = ground.gated
    async with AsyncExitStack() as stack:
        sidecar = await stack.enter_async_context(place.sidecar())
        door = await stack.enter_async_context(await door_of(sidecar))
        async with place.framework():
            await answers(door, "/readyz", 200)
            gate = await ground.send_gated("before")
            draining = asyncio.create_task(door.get("/drain"))
            await sidecar.says("sidecar.draining")
            gate.touch()
            assert (await draining).status_code == 200
            assert (await ground.look("before")).call.state is InvocationState.SUCCEEDED
            assert (await door.get("/readyz")).status_code == 503
            await ground.send("after", until=str(gate))
        ended_at = now_utc()
        async with place.framework():
            after = await ground.ends("after")
            await answers(door, "/readyz", 200)

    assert after.attempts == 1
    assert after.started_at is not None
    assert after.started_at > ended_at


async def test_it_waits_for_a_nats_that_comes_later(ground: WorkerGround) -> None:
    ground.server.kill()
    async with ground.framework(), ground.sidecar() as sidecar, await door_of(sidecar) as door:
        assert (await door.get("/readyz")).status_code == 503
        await ground.server.start()
        await answers(door, "/readyz", 200)


async def test_one_whose_token_ended_comes_back_with_the_next_one_and_keeps_its_call(ground: WorkerGround) -> None:
    """The call takes longer than a worker may be silent, also when counted from the end of the first connection."""
    place, access = ground.gated, f"acme_{FUNCTION}"

    def give_token(lifetime: timedelta) -> None:
        ground.server.access_with(access, mint_sidecar(ground.keyring.workers, "acme", FUNCTION, now_utc(), lifetime))

    async with place.framework(), place.sidecar() as sidecar, await door_of(sidecar) as door:
        await answers(door, "/readyz", 200)
        gate = await ground.send_gated("paid-for")
        # Shown when it connects again, and over soon after that.
        give_token(timedelta(seconds=3))
        ground.server.kill()
        await ground.server.start()
        await says_queue_away(sidecar, words="refuses us")
        ended_at = now_utc()
        assert (await door.get("/readyz")).status_code == 503
        give_token(timedelta(hours=1))
        await answers(door, "/readyz", 200)

        async def is_longer_than_silence() -> bool:
            return now_utc() - ended_at > timedelta(seconds=ACK_SECONDS + 1)

        await eventually(is_longer_than_silence)
        gate.touch()
        paid_for = await ground.ends("paid-for")
        await ground.send("next", until=str(gate))
        after = await ground.ends("next")
        sidecar.signal(signal.SIGTERM)
        assert await sidecar.ends() == 0

    assert (paid_for.state, paid_for.attempts) == (InvocationState.SUCCEEDED, 1)
    assert (after.state, after.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_it_ends_when_told_so_also_without_nats(ground: WorkerGround) -> None:
    ground.server.kill()
    async with ground.sidecar() as sidecar:
        await sidecar.says("sidecar.started")
        sidecar.signal(signal.SIGTERM)
        assert await sidecar.ends() == 0
    await ground.server.start()


async def test_a_handler_that_is_run_by_hand_answers_calls_and_finishes_them_at_ctrl_c(ground: WorkerGround) -> None:
    program = "from gpu_platform.cli.__main__ import main; main()"
    calls = ("--function", FUNCTION, "--tenant", "acme")
    nats = ("--nats-url", ground.server.url, "--nats-credentials", str(ground.place.nats_credentials))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "worker", GATED, *calls, *nats, cwd=ROOT
    )
    try:
        gate = await ground.send_gated("slow")
        process.send_signal(signal.SIGINT)
        gate.touch()
        assert await asyncio.wait_for(process.wait(), 180) == 0
        assert (await ground.look("slow")).call.state is InvocationState.SUCCEEDED
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
