"""The sidecar's side of the socket."""

from pathlib import Path

import pytest

from serverless import handler
from serverless.framework.calls import Call
from serverless.framework.server import served
from serverless.sidecar.framework_client import MARGIN, FrameworkClient


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
