"""The GPUs' own figures: one GET of an exporter that speaks Prometheus' text format, such as NVIDIA's DCGM exporter."""

import asyncio

import httpx

PATIENCE_SECONDS = 2.0
"""For a whole answer. An exporter reads from memory, and answers within milliseconds."""

LARGEST_ANSWER = 32 << 20
"""About 5,000 GPUs with all figures that DCGM knows. What is larger is no exporter's answer."""


class ExporterError(Exception):
    """There are no figures. The message is for everybody: it names no hosts and no paths."""


async def read_exporter(client: httpx.AsyncClient, url: str) -> str:
    """The text; ExporterError when there is none in time."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), client.stream("GET", url) as answer:
            if answer.status_code != httpx.codes.OK:
                raise ExporterError(f"it answers {answer.status_code}")
            content = bytearray()
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > LARGEST_ANSWER:
                    raise ExporterError("its answer is too large")
            return content.decode(errors="replace")
    except (TimeoutError, httpx.TimeoutException):
        raise ExporterError("no answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL):
        raise ExporterError("no connection") from None
