"""The reconciler's way to NATS: there when NATS is, with words for why it is not, and never in the way of the rest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_platform.nats.connection import JetStream, QueueAccess, core_of, open_queue
from gpu_platform.nats.errors import QueueFullError, QueueUnavailableError
from gpu_platform.nats.streams import list_consumers
from reconciler.functions.queue_link import Duty, QueueLink
from tests.support.nats_server import QueueServer, queue_server
from tests.support.waiting import NotYet, eventually

WAIT = timedelta(seconds=30)


@asynccontextmanager
async def running(
    server: QueueServer, *duties: Duty, on_storage: Callable[[QueueLink], None] = lambda _: None
) -> AsyncIterator[QueueLink]:
    link = QueueLink(QueueAccess(server.url), None, 1, "test", duties, lambda: on_storage(link))
    task = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def problem_of(link: QueueLink) -> str | None:
    try:
        await link.list_consumers()
    except QueueUnavailableError as error:
        return str(error)
    return None


async def is_well(link: QueueLink) -> None:
    async def is_so() -> bool:
        return await problem_of(link) is None

    await eventually(is_so)


async def test_without_an_address_it_says_which_setting_is_missing() -> None:
    link = QueueLink(None, None, 1, "test")
    await link.run()
    assert "natsURL" in (await problem_of(link) or "")


async def test_it_makes_the_streams_and_each_functions_consumer(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as server, running(server) as link:
        await is_well(link)
        for _ in range(2):
            await link.ensure_consumer("acme", "words", WAIT)
        await link.ensure_consumer("acme", "words", WAIT * 2)
        await link.ensure_consumer("default", "other", WAIT)
        async with open_queue(QueueAccess(server.url), "test") as js:
            assert await list_consumers(js) == {("acme", "words"), ("default", "other")}
            info = await js.consumer_info("SERVERLESS_INVOKE", "acme_words")
            assert info.config.ack_wait == 60
        await link.remove_consumer("acme", "words")
        await link.remove_consumer("acme", "words")
        assert await link.list_consumers() == {("default", "other")}


async def test_it_comes_back_with_the_server(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as server, running(server) as link:
        await is_well(link)
        server.kill()
        # A caller is told so, and does not wait for the server, which starts only after that.
        with pytest.raises(QueueUnavailableError):
            await link.ensure_consumer("acme", "words", WAIT)
        await server.start()
        await is_well(link)
        await link.ensure_consumer("acme", "words", WAIT)


async def test_a_full_disk_is_told_of_and_so_is_its_end(tmp_path: Path) -> None:
    seen: list[str | None] = []

    def note(link: QueueLink) -> None:
        seen.append(link.storage_problem)

    async with queue_server(tmp_path) as server, running(server, on_storage=note) as link:
        await is_well(link)
        server.fill_disk()

        async def is_told() -> bool | NotYet:
            return any("storage full" in (problem or "") for problem in seen) or NotYet(seen)

        await eventually(is_told)
        server.kill()
        await server.start()

        async def is_over() -> bool | NotYet:
            return seen[-1] is None or NotYet(seen)

        await eventually(is_over)


async def test_a_duty_that_fails_is_done_again_and_harms_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.functions.queue_link.RETRY_SECONDS", 0.05)
    times = 0

    async def fail(_: JetStream) -> None:
        nonlocal times
        times += 1
        raise RuntimeError("no")

    async def often() -> bool:
        return times > 2

    async with queue_server(tmp_path) as server, running(server, fail) as link:
        await eventually(often)
        await is_well(link)


async def test_it_ends_also_while_it_waits_for_a_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def has_tried() -> bool:
        return any(record.message == "queue.trouble" for record in caplog.records)

    async with queue_server(tmp_path) as server:
        server.kill()
        async with running(server) as link:
            await eventually(has_tried)
            assert "no connection" in (await problem_of(link) or "")
        # Only now does one come.
        await server.start()


async def test_more_consumers_than_an_answer_holds_are_all_found(tmp_path: Path) -> None:
    async with queue_server(tmp_path) as server, running(server) as link:
        await is_well(link)
        for first in range(0, 300, 20):
            names = [f"f{number}" for number in range(first, first + 20)]
            await asyncio.gather(*(link.ensure_consumer("acme", name, WAIT) for name in names))
        assert len(await link.list_consumers()) == 300


async def test_a_connection_that_is_closed_for_good_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.functions.queue_link.RETRY_SECONDS", 0.05)
    seen: list[JetStream] = []

    async def note(js: JetStream) -> None:
        seen.append(js)
        await asyncio.sleep(3600)

    async with queue_server(tmp_path) as server, running(server, note) as link:
        await is_well(link)
        await core_of(seen[0]).close()
        assert await problem_of(link) is not None
        await is_well(link)
        assert len(seen) == 2


async def test_nobody_reads_a_password_in_what_it_says() -> None:
    link = QueueLink(QueueAccess("nats://me:secret@nats.example.com:4222"), None, 1, "test")

    assert await problem_of(link) == "there is no connection to nats.example.com:4222 yet"


async def test_whatever_else_nats_answers_is_a_reason_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def be_full(_: JetStream) -> None:
        raise QueueFullError("maximum consumers limit reached")

    monkeypatch.setattr("reconciler.functions.queue_link.list_consumers", be_full)
    async with queue_server(tmp_path) as server, running(server) as link:

        async def is_told() -> bool:
            return "maximum consumers limit" in (await problem_of(link) or "")

        await eventually(is_told)
