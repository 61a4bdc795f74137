"""The sidecar between a framework that comes and goes and a NATS that is not always there."""

import asyncio
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from gpu_platform.adapters.clock import now_utc
from gpu_platform.adapters.queue.connection import JetStream, QueueAccess, open_queue
from gpu_platform.adapters.queue.layout import ensure_consumer, ensure_streams
from gpu_platform.adapters.queue.records import Records
from gpu_platform.domain.invocations import Invocation, InvocationRequest, InvocationState, accept
from gpu_platform.domain.queue_keyring import Keyring
from gpu_platform.domain.queue_permissions import QueueUser, inbox_prefix_of
from gpu_platform.domain.queue_tokens import mint_sidecar
from tests.architecture.repository import ROOT
from tests.support.daemons import Daemon
from tests.support.function_workers import WorkerPlace
from tests.support.nats_server import QueueServer, queue_server
from tests.support.waiting import eventually


@dataclass
class Ground:
    place: WorkerPlace
    server: QueueServer
    records: Records

    async def send(self, invocation_id: str, **payload: object) -> None:
        request = InvocationRequest(function="words", id=invocation_id, payload={"text": "a b", **payload})
        call = (await self.records.accept(accept("acme", request, now_utc()))).seen.call
        await self.records.enqueue(call)

    async def look(self, invocation_id: str) -> Invocation:
        seen = await self.records.find("acme", invocation_id)
        assert seen is not None
        return seen.call

    async def ends(self, invocation_id: str) -> Invocation:
        async def over() -> Invocation | None:
            call = await self.look(invocation_id)
            return call if call.is_over else None

        return await eventually(over)


async def prepare(js: JetStream) -> None:
    await ensure_streams(js)
    await ensure_consumer(js, "acme", "words", timedelta(seconds=3))


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with queue_server(tmp_path) as server, open_queue(QueueAccess(server.url), "test") as js:
        await prepare(js)
        yield Ground(WorkerPlace(tmp_path, server.url, "acme", "words", 3, 3), server, Records(js, timedelta(hours=1)))


async def door_of(sidecar: Daemon) -> httpx.AsyncClient:
    port = (await sidecar.says("sidecar.started"))["health_port"]
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30)


async def answers(door: httpx.AsyncClient, path: str, status: int) -> None:
    async def is_so() -> bool:
        return (await door.get(path)).status_code == status

    await eventually(is_so)


async def test_it_is_ready_when_nats_and_framework_are(ground: Ground) -> None:
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


async def test_one_that_is_drained_finishes_its_call_and_begins_again_with_the_next_framework(ground: Ground) -> None:
    async with AsyncExitStack() as stack:
        sidecar = await stack.enter_async_context(ground.place.sidecar())
        door = await stack.enter_async_context(await door_of(sidecar))
        async with ground.place.framework():
            await answers(door, "/readyz", 200)
            await ground.send("before", delay=2)

            async def has_begun() -> bool:
                return (await ground.look("before")).state is InvocationState.RUNNING

            await eventually(has_begun)
            assert (await door.get("/drain")).status_code == 200
            assert (await ground.look("before")).state is InvocationState.SUCCEEDED
            assert (await door.get("/readyz")).status_code == 503
            await ground.send("after")
            await asyncio.sleep(2)
            assert (await ground.look("after")).state is InvocationState.QUEUED
        async with ground.place.framework():
            assert (await ground.ends("after")).attempts == 1
            await answers(door, "/readyz", 200)


async def test_it_waits_for_a_nats_that_comes_later(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as server:
        async with open_queue(QueueAccess(server.url), "test") as js:
            await prepare(js)
        server.kill()
        place = WorkerPlace(tmp_path, server.url, "acme", "words", 3, 3)
        async with place.framework(), place.sidecar() as sidecar, await door_of(sidecar) as door:
            assert (await door.get("/readyz")).status_code == 503
            await server.start()
            await answers(door, "/readyz", 200)


async def test_one_whose_token_ended_comes_back_with_the_next_one_and_keeps_its_call(tmp_path: Path) -> None:
    """The call takes longer than a worker may be silent, also when counted from the end of the first connection."""
    keyring, functions = Keyring.new(secrets.token_bytes), QueueUser.FUNCTIONS
    async with (
        queue_server(tmp_path, keyring=keyring) as server,
        open_queue(server.access_of(functions), "test", inbox_prefix=inbox_prefix_of(functions)) as js,
    ):
        await ensure_streams(js)
        await ensure_consumer(js, "acme", "words", timedelta(seconds=8))
        short = mint_sidecar(keyring.workers, "acme", "words", now_utc(), timedelta(seconds=6))
        credentials = server.access_with("sidecar", short).credentials
        place = WorkerPlace(tmp_path, server.url, "acme", "words", 8, 3, credentials)
        ground = Ground(place, server, Records(js, timedelta(hours=1)))
        async with place.framework(), place.sidecar() as sidecar, await door_of(sidecar) as door:
            await answers(door, "/readyz", 200)
            await ground.send("paid-for", delay=20)
            await answers(door, "/readyz", 503)
            server.access_with("sidecar", mint_sidecar(keyring.workers, "acme", "words", now_utc()))
            await answers(door, "/readyz", 200)
            paid_for = await ground.ends("paid-for")
            await ground.send("next")
            after = await ground.ends("next")
            sidecar.signal(signal.SIGTERM)
            assert await sidecar.ends(within=180) == 0

    assert (paid_for.state, paid_for.attempts) == (InvocationState.SUCCEEDED, 1)
    assert (after.state, after.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_it_ends_when_told_so_also_without_nats(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as server:
        server.kill()
        place = WorkerPlace(tmp_path, server.url, "acme", "words", 3, 3)
        async with place.sidecar() as sidecar:
            await sidecar.says("sidecar.started")
            sidecar.signal(signal.SIGTERM)
            assert await sidecar.ends(within=180) == 0
        await server.start()


async def test_a_handler_that_is_run_by_hand_answers_calls_and_finishes_them_at_ctrl_c(ground: Ground) -> None:
    program = "from gpu_platform.cli.app import main; main()"
    options = ("examples/functions/words.py:count", "--function", "words", "--tenant", "acme")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "worker", *options, "--nats-url", ground.server.url, cwd=ROOT
    )
    try:
        await ground.send("one")
        assert (await ground.ends("one")).state is InvocationState.SUCCEEDED
        await ground.send("slow", delay=2)

        async def has_begun() -> bool:
            return (await ground.look("slow")).state is InvocationState.RUNNING

        await eventually(has_begun)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0
        assert (await ground.look("slow")).state is InvocationState.SUCCEEDED
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
