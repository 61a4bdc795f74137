"""The sidecar's own door."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from serverless.sidecar.drain import served


async def well() -> bool:
    return True


async def not_well() -> bool:
    return False


@pytest.fixture
async def door() -> AsyncIterator[tuple[httpx.AsyncClient, int]]:
    async with (
        served({"/healthz": well, "/readyz": not_well}, "127.0.0.1", 0) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        yield client, port


async def test_well_is_200_and_not_well_is_503(door: tuple[httpx.AsyncClient, int]) -> None:
    client, _ = door
    assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz?x=1")] == [200, 503]


async def test_what_is_not_there_is_404_and_another_verb_405(door: tuple[httpx.AsyncClient, int]) -> None:
    client, _ = door
    assert (await client.get("/other")).status_code == 404
    assert (await client.post("/healthz")).status_code == 405


@pytest.mark.parametrize("words", [b"", b"nonsense\r\n\r\n", b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 200])
async def test_what_is_no_question_gets_no_answer_and_harms_nobody(
    door: tuple[httpx.AsyncClient, int], words: bytes
) -> None:
    client, port = door
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(words)
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    assert (await client.get("/healthz")).status_code == 200
