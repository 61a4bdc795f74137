"""What becomes of the GPUs' figures when their exporter is in trouble: no figures, and a reason."""

import asyncio
from datetime import UTC, datetime

import httpx
import pytest

from platform_api.health.gpu_readings import PATIENCE_SECONDS, GpuReader
from tests.support.exporter import exporter_text
from tests.support.virtual_time import now, run_in_virtual_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)
URL = "http://exporter.example.com/metrics"


async def read(reader: GpuReader, status: int, text: str) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, text=text))
    async with httpx.AsyncClient(transport=transport) as client:
        await reader.read(client, URL)


async def test_figures_are_kept_until_there_are_none() -> None:
    reader = GpuReader(URL, lambda: NOW)
    assert not reader.is_connected
    await read(reader, 200, exporter_text())
    assert (reader.is_connected, len(reader.readings) > 0, reader.read_at) == (True, True, NOW)


@pytest.mark.parametrize(
    ("status", "text", "words"), [(500, "", "it answers 500"), (200, "up 1\n", "its answer says nothing about GPUs")]
)
async def test_an_exporter_in_trouble_is_said_in_words(status: int, text: str, words: str) -> None:
    reader = GpuReader(URL, lambda: NOW)
    await read(reader, 200, exporter_text())
    await read(reader, status, text)
    assert (reader.is_connected, reader.problem, reader.readings) == (False, words, ())


class Silence(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError(request)


def test_a_silent_exporter_is_given_up_after_its_patience() -> None:
    async def main() -> None:
        reader = GpuReader(URL, lambda: NOW)
        async with httpx.AsyncClient(transport=Silence()) as client:
            await reader.read(client, URL)
        assert (reader.problem, now()) == ("no answer in time", PATIENCE_SECONDS)

    run_in_virtual_time(main())
