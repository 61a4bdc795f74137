"""The sidecar's side of the socket."""

import asyncio
from pathlib import Path

import pytest

from gpu_platform.domain.invocation_plan import Loss
from serverless import handler
from serverless.framework.calls import Call
from serverless.framework.server import served
from serverless.sidecar.framework_client import MARGIN, FrameworkClient, NoAnswerError


@pytest.mark.parametrize(("size", "fits"), [(1_000, True), (MARGIN + 2_000, False)])
async def test_an_answer_beyond_the_limit_is_not_held_and_is_a_failure(tmp_path: Path, size: int, fits: bool) -> None:
    path = tmp_path / "framework.sock"
    with served(handler(lambda payload: "x" * payload), path):
        async with FrameworkClient(path, largest_body=1_100) as client:
            answer = await client.invoke(Call("call-1", "f", payload=size))
            assert await client.is_ready()

    assert answer.is_success == fits
    assert fits or "too large" in (answer.error or "")


async def test_one_that_has_just_answered_is_known_to_be_gone_by_who_asks_it(tmp_path: Path) -> None:
    """Whoever waits for the next one would else miss that this one has ended."""
    path = tmp_path / "framework.sock"
    async with FrameworkClient(path) as client:
        with served(handler(lambda payload: payload), path):
            await client.invoke(Call("call-1", "f"))
            assert await client.seems_ready()
            assert await client.is_ready()
        assert not await client.is_ready()


async def test_a_framework_that_is_started_again_has_another_identity(tmp_path: Path) -> None:
    path = tmp_path / "framework.sock"
    async with FrameworkClient(path) as client:
        assert client.identity() is None
        identities = []
        for _ in range(2):
            with served(handler(lambda payload: payload), path):
                identities += [client.identity(), client.identity()]

    first, again, second, _ = identities
    assert first == again
    assert None not in identities
    assert first != second


async def lose(client: FrameworkClient) -> Loss:
    with pytest.raises(NoAnswerError) as raised:
        await client.invoke(Call("call-1", "f"))
    return raised.value.loss


async def test_a_call_without_a_connection_was_not_received(tmp_path: Path) -> None:
    path = tmp_path / "framework.sock"
    async with FrameworkClient(path) as client:
        without_socket = await lose(client)
        with served(handler(lambda payload: payload), path):
            left_behind = tmp_path / "dead.sock"
            left_behind.hardlink_to(path)
        async with FrameworkClient(left_behind) as of_the_dead:
            refused = await lose(of_the_dead)

    assert (without_socket, refused) == (Loss.NOT_RECEIVED, Loss.NOT_RECEIVED)


@pytest.mark.parametrize(
    ("answer", "loss"),
    [
        (b"", Loss.DIED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", Loss.DIED),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Loss.REFUSED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", Loss.REFUSED),
        (b"no HTTP\r\n\r\n", Loss.REFUSED),
    ],
    ids=["nothing", "half an answer", "refused", "no JSON", "no HTTP"],
)
async def test_a_call_that_was_received_and_not_answered_tells_why(tmp_path: Path, answer: bytes, loss: Loss) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    path = tmp_path / "framework.sock"
    async with await asyncio.start_unix_server(serve, path), FrameworkClient(path) as client:
        assert await lose(client) is loss
