"""Asks the exporter now and then, so that nobody who wants to know has to wait for it."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

import httpx

from platform_api.gpu_exporter import ExporterError, read_exporter
from platform_api.health.gpu_readings import Reading, parse_readings

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
"""Chosen by feel: exporters themselves ask the GPUs every 1 to 30 s."""


class GpuReader:
    def __init__(self, url: str | None, now: Callable[[], datetime]) -> None:
        self._url = url
        self._now = now
        self.problem: str | None = "it was not asked yet"
        """Why there are no figures, in words; None while there are."""

        self.readings: tuple[Reading, ...] = ()
        self.read_at: datetime | None = None

    @property
    def is_configured(self) -> bool:
        return self._url is not None

    @property
    def is_connected(self) -> bool:
        return self.is_configured and self.problem is None

    async def run(self) -> None:
        if self._url is None:
            return
        # Without the machine's proxy: an exporter is in the cluster.
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                await self.read(client, self._url)
                await asyncio.sleep(INTERVAL_SECONDS)

    async def read(self, client: httpx.AsyncClient, url: str) -> None:
        """Old figures are forgotten when there are no new ones."""
        before = self.problem
        try:
            # Thousands of GPUs take a second, in which nobody else would be served.
            self.readings = await asyncio.to_thread(parse_readings, await read_exporter(client, url))
            self.read_at = self._now()
            self.problem = None if self.readings else "its answer says nothing about GPUs"
        except ExporterError as error:
            self.readings, self.problem = (), str(error)
        except Exception:
            # These figures are never worth the process that everybody else needs.
            log.exception("gpu-exporter.unreadable")
            self.readings, self.problem = (), "its answer cannot be read"
        if before != self.problem:
            log.info("gpu-exporter.changed", extra={"problem": self.problem})
