"""A nats-server whose disk is full, and has room again: only a write shows that it stores nothing."""

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_platform.nats.connection import JetStream, QueueAccess, open_queue
from gpu_platform.nats.credentials import Keyring
from gpu_platform.nats.durability import PROBES, Probe, StorageWatch, probe_storage
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.listing import EVERYBODY, Listing
from gpu_platform.nats.permissions import QueueUser, inbox_prefix_of
from gpu_platform.nats.streams import ensure_consumer, ensure_streams, read_backlogs
from gpu_platform.nats.subjects import QUEUE, RESERVED_BYTES
from infra.components.nats import LEAST_NATS_STORAGE, Nats
from tests.support.fault_report import FaultReport
from tests.support.nats_server import QueueServer, queue_server
from tests.support.waiting import NotYet, eventually


@asynccontextmanager
async def streams_on(server: QueueServer) -> AsyncIterator[JetStream]:
    async with open_queue(QueueAccess(server.url), "test") as js:
        await ensure_streams(js)
        await ensure_consumer(js, "acme", "words", timedelta(seconds=30))
        yield js


async def test_a_probe_leaves_nothing_that_a_call_would_meet(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as server, streams_on(server) as js:
        for _ in range(3):
            assert not (await probe_storage(js)).failed
        listing = Listing(js)
        assert (await listing.read_page(EVERYBODY, 0)).scanned == 0
        assert await listing.read_queue() == ()
        assert (await js.stream_info(QUEUE)).state.messages == 0
        [backlog] = (await read_backlogs(js)).values()
        assert backlog.calls == 0
        for stream in PROBES:
            # One message of the probe at most, however often it is made.
            assert (await js.stream_info(stream)).state.messages <= 1


async def test_a_full_disk_shows_until_the_server_is_restarted(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as server, streams_on(server) as js:
        watch = StorageWatch()
        assert await watch.look(js) is None
        server.fill_disk()
        problem = await watch.look(js)
        assert problem is not None
        assert "storage full (file too large)" in problem
        assert all(stream in problem for stream in PROBES)
        with pytest.raises(QueueUnavailableError) as refused:
            await ensure_consumer(js, "acme", "words", timedelta(seconds=60))
        assert str(refused.value) == "NATS failed: file too large"
        # It answers everything else, and room alone does not mend it.
        assert (await Listing(js).read_page(EVERYBODY, 0)).is_last
        server.empty_disk()
        assert await watch.look(js) == problem

        server.kill()
        assert await watch.look(js) == problem
        await server.start()

        async def stores() -> bool | NotYet:
            return await watch.look(js) is None or NotYet(watch.problem)

        await eventually(stores)


async def test_streams_that_are_not_there_are_named(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as server, open_queue(QueueAccess(server.url), "test") as js:
        watch = StorageWatch()
        assert await watch.look(js) is None, "once: another server of them may be elected"
        assert await watch.look(js) == f"NATS stores nothing in {', '.join(sorted(PROBES))}: no stream answers"
        await ensure_streams(js)
        assert await watch.look(js) is None


@pytest.mark.parametrize("user", [QueueUser.API, QueueUser.FUNCTIONS])
async def test_the_platforms_own_users_may_probe(tmp_path: Path, user: QueueUser) -> None:
    async with queue_server(tmp_path, keyring=Keyring.new(secrets.token_bytes)) as server:
        maker = QueueUser.FUNCTIONS
        async with open_queue(server.access_of(maker), "maker", inbox_prefix=inbox_prefix_of(maker)) as js:
            await ensure_streams(js)
        async with open_queue(server.access_of(user), "test", inbox_prefix=inbox_prefix_of(user)) as js:
            assert await probe_storage(js) == Probe()


async def test_the_smallest_volume_that_the_settings_accept_has_room_for_the_streams(tmp_path: Path) -> None:
    smallest = Nats(enabled=True, image="nats:2.12.2", storage=LEAST_NATS_STORAGE).stored_bytes
    for number, (stored_bytes, fits) in enumerate([(smallest, True), (RESERVED_BYTES - 1, False)]):
        (directory := tmp_path / str(number)).mkdir()
        async with (
            queue_server(directory, stored_bytes=stored_bytes) as server,
            open_queue(QueueAccess(server.url), "test") as js,
        ):
            with nullcontext() if fits else pytest.raises(QueueUnavailableError, match="insufficient storage"):
                await ensure_streams(js)


@pytest.mark.faults
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
async def test_a_file_system_that_is_full_shows_in_its_own_words(tmp_path: Path, faults: FaultReport) -> None:
    data = tmp_path / "data"
    data.mkdir()
    await run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(data))
    try:
        async with queue_server(tmp_path) as server, streams_on(server) as js:
            watch = StorageWatch()
            assert await watch.look(js) is None
            (data / "ballast").write_bytes(b"x" * shutil.disk_usage(data).free)
            faults.hit("full file system")

            async def is_full() -> bool | NotYet:
                problem = await watch.look(js) or ""
                return "storage full (no space left on device)" in problem or NotYet(problem)

            await eventually(is_full)
            (data / "ballast").unlink()
            assert "storage full" in (await watch.look(js) or "")
            server.kill()
            await server.start()

            async def stores() -> bool | NotYet:
                return await watch.look(js) is None or NotYet(watch.problem)

            await eventually(stores)
            faults.held("a full disk is named", "a restart with room mends it")
    finally:
        await run("umount", "--lazy", str(data))


async def run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0, command
