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
