"""A function's queue on a nats-server of a test's own, with the rights of an installation, and places for workers."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpu_platform.clock import now_utc
from gpu_platform.domain.invocations import Invocation, InvocationRequest, InvocationState, accept
from gpu_platform.nats.bodies import Bodies
from gpu_platform.nats.connection import JetStream, open_queue
from gpu_platform.nats.credentials import Keyring
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.permissions import QueueUser, inbox_prefix_of
from gpu_platform.nats.records import Records, Seen
from gpu_platform.nats.streams import ensure_consumer, ensure_streams
from tests.support.daemons import Daemon
from tests.support.function_workers import GATED, WorkerPlace
from tests.support.nats_server import QueueServer, queue_server
from tests.support.waiting import NotYet, eventually

FUNCTION = "words"
ACK_SECONDS = 3
ATTEMPTS = 3


@dataclass
class WorkerGround:
    place: WorkerPlace
    server: QueueServer
    keyring: Keyring
    js: JetStream
    records: Records
    bodies: Bodies

    async def send(
        self, invocation_id: str, timeout: int | None = None, at: datetime | None = None, **payload: Any
    ) -> Invocation:
        request = InvocationRequest(
            function=FUNCTION, id=invocation_id, payload={"text": "a b c", **payload}, timeout_seconds=timeout
        )
        return await self.send_call(accept("acme", request, at or now_utc()))

    async def send_call(self, call: Invocation) -> Invocation:
        known = (await self.records.accept(call)).seen.call
        await self.records.enqueue(known)
        return known

    async def send_gated(self, invocation_id: str) -> Path:
        """A call that runs until the file is there; for a place with the gated function."""
        gate = self.place.root / f"{invocation_id}.go"
        await self.send(invocation_id, until=str(gate))
        await self.runs(invocation_id)
        return gate

    async def look(self, invocation_id: str) -> Seen:
        seen = await self.records.find("acme", invocation_id)
        assert seen is not None
        return seen

    async def ends(self, invocation_id: str) -> Invocation:
        async def is_over() -> Invocation | NotYet:
            try:
                call = (await self.look(invocation_id)).call
            except QueueUnavailableError as error:
                return NotYet(error)
            return call if call.is_over else NotYet(call)

        return await eventually(is_over)

    async def runs(self, invocation_id: str) -> Invocation:
        async def is_running() -> Invocation | NotYet:
            call = (await self.look(invocation_id)).call
            return call if call.state is InvocationState.RUNNING else NotYet(call)

        return await eventually(is_running)

    async def is_empty(self) -> bool:
        return bool((await self.js.stream_info("SERVERLESS_INVOKE")).state.messages == 0)

    @property
    def gated(self) -> WorkerPlace:
        return replace(self.place, handler=GATED)

    def framework(self, name: str = "worker") -> AbstractAsyncContextManager[None]:
        return self.place.framework(name)

    def sidecar(self, name: str = "worker") -> AbstractAsyncContextManager[Daemon]:
        return self.place.sidecar(name)


@asynccontextmanager
async def open_worker_ground(directory: Path) -> AsyncIterator[WorkerGround]:
    """Everybody with the rights that they have in an installation, and no others."""
    user, keyring = QueueUser.FUNCTIONS, Keyring.new(secrets.token_bytes)
    async with (
        queue_server(directory, keyring=keyring) as server,
        open_queue(server.access_of(user), "test", inbox_prefix=inbox_prefix_of(user)) as js,
    ):
        await ensure_streams(js)
        await ensure_consumer(js, "acme", FUNCTION, timedelta(seconds=ACK_SECONDS))
        credentials = server.sidecar_access("acme", FUNCTION).credentials
        place = WorkerPlace(directory, server.url, "acme", FUNCTION, ACK_SECONDS, ATTEMPTS, credentials)
        records, bodies = Records(js, timedelta(hours=1)), Bodies(js, timedelta(hours=1))
        yield WorkerGround(place, server, keyring, js, records, bodies)


async def says_queue_away(sidecar: Daemon, words: str = "", invocation_id: str | None = None) -> None:
    """With these words; for one call, once its answer could not be written."""

    async def is_said() -> bool:
        told = [entry for entry in sidecar.entries() if entry["message"] == "queue.away"]
        return any(words in entry["error"] and entry.get("invocation") == invocation_id for entry in told)

    await eventually(is_said)
