"""The API's way to NATS: made in the background, kept for ever. Everything else is served without it."""

import asyncio
import logging

from gpu_platform.nats.connection import (
    JetStream,
    QueueAccess,
    core_of,
    obey_cancellation,
    open_queue,
    run_until_closed,
)
from gpu_platform.nats.durability import StorageWatch
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.permissions import QueueUser, inbox_prefix_of
from gpu_platform.nats.records import Hints
from platform_api.http.errors import unavailable
from platform_api.settings import ApiSettings
from platform_api.single_flight import SharedTasks

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
NOT_CONFIGURED = "this API runs without NATS: natsURL is not set"
AWAY = "NATS does not answer just now"


class QueueLink:
    def __init__(self, access: QueueAccess | None, name: str) -> None:
        self._access = access
        self._name = name
        self._js: JetStream | None = None
        self._storage = StorageWatch()
        self._looks: SharedTasks[str, str | None] = SharedTasks()
        self.hints = Hints()

    @property
    def problem(self) -> str | None:
        """Why it cannot be used, in words for everybody; None when it can."""
        if self._access is None:
            return NOT_CONFIGURED
        return None if self._js is not None and core_of(self._js).is_connected else AWAY

    @property
    def storage_problem(self) -> str | None:
        """Why it stores nothing, as callers may read it; None while it does, or cannot be asked. It can be read all
        the same."""
        return self._storage.problem if self.problem is None else None

    def check_storage(self) -> None:
        """503 at once, where a write could only be waited for in vain."""
        if self.storage_problem is not None:
            raise unavailable(f"{self.storage_problem}; calls that were accepted are safe")

    async def explain(self, error: QueueUnavailableError) -> str:
        """Why a write failed: what a look at the storage finds, or else the error's own words."""
        if self._js is None or self.problem is not None:
            return str(error)
        return await self._look(self._js) or str(error)

    @property
    def is_configured(self) -> bool:
        return self._access is not None

    @property
    def js(self) -> JetStream:
        """QueueUnavailableError at once, where an answer could only be waited for in vain."""
        if self._js is None or self.problem is not None:
            raise QueueUnavailableError(self.problem or AWAY)
        return self._js

    async def run(self) -> None:
        while self._access is not None:
            try:
                await self._stay_connected(self._access)
            except QueueUnavailableError as error:
                log.error("queue.unusable", extra={"error": str(error)})
            finally:
                self._js = None
            obey_cancellation()
            await asyncio.sleep(RETRY_SECONDS)

    async def _stay_connected(self, access: QueueAccess) -> None:
        async with open_queue(access, self._name, inbox_prefix=inbox_prefix_of(QueueUser.API)) as js:
            await self.hints.follow(js)
            self._js = js
            log.info("queue.connected", extra={"server": access.place})
            await run_until_closed(js, self._watch_storage(js))

    async def _watch_storage(self, js: JetStream) -> None:
        while True:
            await self._look(js)
            obey_cancellation()
            await asyncio.sleep(self._storage.pause_seconds)

    async def _look(self, js: JetStream) -> str | None:
        """Shared by all who ask at once."""
        return await self._looks.join("storage", lambda: self._storage.look(js))


def build_queue_link(settings: ApiSettings, name: str) -> QueueLink:
    if settings.nats_url is None:
        return QueueLink(None, name)
    return QueueLink(QueueAccess(settings.nats_url, settings.nats_credentials, settings.nats_ca), name)
