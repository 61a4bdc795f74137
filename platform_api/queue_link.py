"""The API's way to NATS: made in the background, kept for ever. Everything else is served without it."""

import asyncio
import logging

from gpu_platform.adapters.queue.cancellation import obey_cancellation
from gpu_platform.adapters.queue.connection import JetStream, QueueAccess, open_queue
from gpu_platform.adapters.queue.core import core_of, wait_until_closed
from gpu_platform.adapters.queue.errors import QueueUnavailableError
from gpu_platform.adapters.queue.hints import Hints
from gpu_platform.domain.queue_permissions import QueueUser, inbox_prefix_of
from platform_api.settings import ApiSettings

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
NOT_CONFIGURED = "this API runs without NATS: natsURL is not set"
AWAY = "NATS does not answer just now"


class QueueLink:
    def __init__(self, access: QueueAccess | None, name: str) -> None:
        self._access = access
        self._name = name
        self._js: JetStream | None = None
        self.hints = Hints()

    @property
    def problem(self) -> str | None:
        """Why it cannot be used, in words for everybody; None when it can."""
        if self._access is None:
            return NOT_CONFIGURED
        return None if self._js is not None and core_of(self._js).is_connected else AWAY

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
            await wait_until_closed(js)


def build_queue_link(settings: ApiSettings, name: str) -> QueueLink:
    if settings.nats_url is None:
        return QueueLink(None, name)
    return QueueLink(QueueAccess(settings.nats_url, settings.nats_credentials, settings.nats_ca), name)
