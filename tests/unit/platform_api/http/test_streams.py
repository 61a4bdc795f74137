"""How many streams there may be, and when one ends."""

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

import pytest

from platform_api.http.connections import OWN_DEADLINE
from platform_api.http.errors import ApiError, unavailable
from platform_api.http.streams import Streams
from platform_api.metrics import ApiMetrics
from tests.support.virtual_time import now, run_in_virtual_time


async def parts() -> AsyncGenerator[bytes, None]:
    yield b"first"
    await asyncio.Event().wait()


async def test_one_tenant_may_have_a_quarter_of_all_streams() -> None:
    streams = Streams(8, ApiMetrics())
    opened = [await streams.respond(parts(), "text/plain", "greedy", lambda: True) for _ in range(2)]
    with pytest.raises(ApiError) as refused:
        await streams.respond(parts(), "text/plain", "greedy", lambda: True)
    assert refused.value.status == 429
    opened.append(await streams.respond(parts(), "text/plain", "other", lambda: True))
    for stream in opened:
        await stream._parts.end()  # type: ignore[attr-defined]
    again = await streams.respond(parts(), "text/plain", "greedy", lambda: True)
    await again._parts.end()  # type: ignore[attr-defined]


async def test_a_stream_ends_when_its_caller_may_no_longer_listen() -> None:
    is_known = True
    stream = await Streams(4, ApiMetrics()).respond(parts(), "text/plain", "tenant", lambda: is_known)
    reading = stream.body_iterator.__aiter__()
    assert await anext(reading) == b"first"
    is_known = False
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(reading), 10)
    await stream._parts.end()  # type: ignore[attr-defined]


async def silence() -> AsyncGenerator[bytes, None]:
    await asyncio.Event().wait()
    yield b"never"


def test_a_silent_stream_begins_within_two_seconds_and_ends_within_five_of_its_key() -> None:
    async def main() -> None:
        is_known = True
        stream = await Streams(4, ApiMetrics()).respond(silence(), "text/plain", "tenant", lambda: is_known)
        assert now() < 2
        reading = stream.body_iterator.__aiter__()
        waiting = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(60)
        is_known = False
        await asyncio.sleep(5)
        with pytest.raises(StopAsyncIteration):
            waiting.result()
        await stream._parts.end()  # type: ignore[attr-defined]

    run_in_virtual_time(main())


@pytest.mark.parametrize("seconds", [0.5, 5, 60])
def test_a_stream_with_an_opening_waits_for_it_and_fails_before_it_begins(seconds: float) -> None:
    """A list that times out after the moment for which other streams are waited for is an error, and no stream."""

    async def failing() -> AsyncGenerator[bytes, None]:
        for part in list[bytes]():
            yield part
        await asyncio.sleep(seconds)
        raise unavailable("Kubernetes does not answer")

    async def slow() -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(seconds)
        yield b"list"

    async def main() -> None:
        streams = Streams(4, ApiMetrics())
        with pytest.raises(ApiError):
            await streams.respond(failing(), "text/plain", "tenant", lambda: True, has_opening=True)
        stream = await streams.respond(slow(), "text/plain", "tenant", lambda: True, has_opening=True)
        assert await anext(stream.body_iterator.__aiter__()) == b"list"
        await stream._parts.end()  # type: ignore[attr-defined]

    run_in_virtual_time(main())


async def test_a_caller_may_pause_a_stream() -> None:
    """As a pager does that shows a log: the answer has no deadline while its client does not read."""

    async def one_part() -> AsyncGenerator[bytes, None]:
        yield b"first"

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(_: MutableMapping[str, Any]) -> None: ...

    stream = await Streams(4, ApiMetrics()).respond(one_part(), "text/plain", "tenant", lambda: True)
    scope: dict[str, Any] = {"type": "http", "state": {}, "asgi": {"spec_version": "2.3"}}
    await stream(scope, receive, send)
    assert scope["state"][OWN_DEADLINE]
