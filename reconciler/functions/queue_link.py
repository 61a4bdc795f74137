"""The reconciler's way to NATS: a connection that is made while this process leads, and kept in the background.

Whoever needs it asks, and hears what is wrong when it is not there: the rest of the work goes on without it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from gpu_platform.nats.connection import JetStream, QueueAccess, obey_cancellation, open_queue, run_until_closed
from gpu_platform.nats.durability import NotDurableError, StorageWatch, check_durability
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.permissions import QueueUser, inbox_prefix_of
from gpu_platform.nats.streams import (
    Backlog,
    ensure_consumer,
    ensure_streams,
    list_consumers,
    read_backlog,
    remove_consumer,
)

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
STREAMS_SECONDS = 60.0
"""Between two looks at whether the streams are as they should be."""

CONNECTING_SECONDS = 10.0
"""At the beginning of a term: before that, nobody says that NATS is away."""

NOT_CONFIGURED = "NATS is not configured: natsURL in the reconciler's settings says where it is"

T = TypeVar("T")
Duty = Callable[[JetStream], Awaitable[None]]
"""Something that is done while there is a connection, for ever."""


class StillConnectingError(QueueUnavailableError):
    """This process has just begun to lead: whether NATS is away, nobody knows yet."""


class QueueLink:
    """Every question may raise QueueUnavailableError."""

    def __init__(
        self,
        access: QueueAccess | None,
        system: QueueAccess | None,
        replicas: int,
        name: str,
        duties: Sequence[Duty] = (),
        on_storage: Callable[[], None] = lambda: None,
    ) -> None:
        """Without `system`, the servers are not asked whether they keep what they acknowledge. `on_storage` is called
        when `storage_problem` has changed."""
        self._access = access
        self._system = system
        self._replicas = replicas
        self._name = name
        self._duties = tuple(duties)
        self._js: JetStream | None = None
        self._problem = _not_yet(access) if access else NOT_CONFIGURED
        self._is_connecting = access is not None
        self._connecting_until: float | None = None
        self._storage = StorageWatch()
        self._on_storage = on_storage

    @property
    def storage_problem(self) -> str | None:
        """Why NATS stores nothing; None while it does, or before it was asked."""
        return self._storage.problem

    async def run(self) -> None:
        """While this process leads."""
        if self._access is None:
            return
        self._problem = _not_yet(self._access)
        self._connecting_until = asyncio.get_running_loop().time() + CONNECTING_SECONDS
        try:
            await self._keep_connected(self._access)
        finally:
            self._is_connecting, self._connecting_until = True, None

    async def _keep_connected(self, access: QueueAccess) -> None:
        while True:
            try:
                await self._stay_connected(access)
            except (QueueUnavailableError, NotDurableError) as error:
                self._problem = str(error)
                log.error("queue.unusable", extra={"error": str(error)})
            except Exception as error:
                # Whatever it is, units and stock do not wait for it.
                self._problem = f"NATS cannot be used: {error}"
                log.exception("queue.failed")
            finally:
                self._js = None
                self._is_connecting = False
            obey_cancellation()
            await asyncio.sleep(RETRY_SECONDS)

    async def _stay_connected(self, access: QueueAccess) -> None:
        if self._system is not None:
            await check_durability(self._system, self._replicas, self._name)
        inbox = inbox_prefix_of(QueueUser.FUNCTIONS)
        async with open_queue(access, self._name, inbox_prefix=inbox) as js:
            await ensure_streams(js, self._replicas)
            obey_cancellation()
            self._js = js
            log.info("queue.connected", extra={"server": access.place})
            duties = (self._keep_streams, self._watch_storage, *self._duties)
            await run_until_closed(js, *(_for_ever(duty, js) for duty in duties))
        raise QueueUnavailableError(f"{access.place} does not let us in any more; we try it anew")

    async def _keep_streams(self, js: JetStream) -> None:
        while True:
            await asyncio.sleep(STREAMS_SECONDS)
            await ensure_streams(js, self._replicas)
            obey_cancellation()

    async def _watch_storage(self, js: JetStream) -> None:
        while True:
            before = self._storage.problem
            if await self._storage.look(js) != before:
                self._on_storage()
            obey_cancellation()
            await asyncio.sleep(self._storage.pause_seconds)

    async def ensure_consumer(self, tenant: str, function: str, ack_wait: timedelta) -> None:
        await self._ask(lambda js: ensure_consumer(js, tenant, function, ack_wait))

    async def remove_consumer(self, tenant: str, function: str) -> None:
        """With what waits for it."""
        await self._ask(lambda js: remove_consumer(js, tenant, function))

    async def list_consumers(self) -> frozenset[tuple[str, str]]:
        return await self._ask(list_consumers)

    async def read_backlog(self, tenant: str, function: str) -> Backlog | None:
        return await self._ask(lambda js: read_backlog(js, tenant, function))

    async def _ask(self, question: Callable[[JetStream], Coroutine[Any, Any, T]]) -> T:
        """A question is never cancelled, for the client takes that for a time-out; whoever is cancelled leaves it to
        its end."""
        if self._js is None:
            raise self._why_not()
        asking = asyncio.create_task(question(self._js))
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await asyncio.shield(asking)
        except QueueUnavailableError:
            raise
        except Exception as error:
            # Whatever else it answers, such as that it is full, is a reason to wait and no reason to do nothing.
            log.warning("queue.refused", extra={"error": repr(error)})
            raise QueueUnavailableError(f"NATS cannot do it: {str(error) or type(error).__name__}") from error

    def _why_not(self) -> QueueUnavailableError:
        until = self._connecting_until
        if self._is_connecting and (until is None or asyncio.get_running_loop().time() < until):
            return StillConnectingError(self._problem)
        return QueueUnavailableError(self._problem)


async def _for_ever(duty: Duty, js: JetStream) -> None:
    while True:
        try:
            await duty(js)
        except QueueUnavailableError as error:
            log.warning("queue.away", extra={"error": str(error)})
        except Exception:
            log.exception("queue.duty_failed")
        obey_cancellation()
        await asyncio.sleep(RETRY_SECONDS)


def _not_yet(access: QueueAccess) -> str:
    return f"there is no connection to {access.place} yet"
