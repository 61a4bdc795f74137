"""The users of a nats-server in one test, and what they can ask each other and the server."""

import asyncio
import json
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client

from gpu_platform.clock import now_utc
from gpu_platform.nats.connection import QueueAccess, open_client
from gpu_platform.nats.credentials import Credentials, Keyring, KeyRole, build_seed, build_user, public_key_of
from gpu_platform.nats.permissions import Permissions, QueueUser, inbox_prefix_of, sidecar_inbox_prefix
from gpu_platform.nats.subjects import body_subject, queue_subject, record_subject
from tests.support.nats_server import QueueServer, queue_server

ANSWER_SECONDS = 60.0
"""For what is sure to come, on a busy machine."""

REFUSED = "permissions violation for publish to "

OURS = ("acme", "resize")
"""Whose the sidecar is."""


@dataclass
class Users:
    server: QueueServer
    functions: Client
    api: Client
    sidecar: Client
    person: Client
    """Everything in the platform's account."""

    anybody: Client
    """Everything in the workers' account: what the reconciler's signing key could sign at most."""


@asynccontextmanager
async def open_users(directory: Path) -> AsyncIterator[Users]:
    keyring = Keyring.new(secrets.token_bytes)
    async with (
        queue_server(directory, keyring=keyring) as server,
        open_user(server, QueueUser.FUNCTIONS) as functions,
        open_user(server, QueueUser.API) as api,
        open_client(server.sidecar_access(*OURS), "sidecar", inbox_prefix=sidecar_inbox_prefix(*OURS)) as sidecar,
        open_client(server.access_of(QueueUser.PLATFORM), "person") as person,
        open_client(access_of_anybody(server, keyring), "anybody") as anybody,
    ):
        yield Users(server, functions, api, sidecar, person, anybody)


def access_of_anybody(server: QueueServer, keyring: Keyring) -> QueueAccess:
    seed = build_seed(KeyRole.USER, secrets.token_bytes(32))
    everything = Permissions((">",), (">",))
    token = build_user(keyring.workers, public_key_of(seed), "anybody", everything, now_utc())
    return server.access_with("anybody", Credentials(token, seed).render())


def open_user(server: QueueServer, user: QueueUser) -> AbstractAsyncContextManager[Client]:
    return open_client(server.access_of(user), user, inbox_prefix=inbox_prefix_of(user))


def subjects_of(tenant: str, function: str) -> tuple[str, ...]:
    return (
        record_subject(tenant, "call", function),
        queue_subject(tenant, function, "call"),
        body_subject(tenant, function, "call", "request", 0),
        body_subject(tenant, function, "call", "result", 0),
    )


class Refusals:
    """What the server tells one client that it may not say: a publish that is refused has no other answer."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Event]] = defaultdict(list)

    async def note(self, error: Exception) -> None:
        _, _, subject = str(error).partition(REFUSED)
        # In lower case, as the client has it.
        for refused in self._waiting[subject.strip('"')]:
            refused.set()

    @contextmanager
    def waiting(self, subject: str) -> Iterator[asyncio.Event]:
        waiting, refused = self._waiting[subject.lower()], asyncio.Event()
        waiting.append(refused)
        try:
            yield refused
        finally:
            waiting.remove(refused)


def refusals_of(client: Client) -> Refusals:
    known: Refusals | None = getattr(client._error_cb, "__self__", None)
    if not isinstance(known, Refusals):
        known = Refusals()
        client._error_cb = known.note
    return known


async def answer_to(client: Client, subject: str, payload: Any = None, headers: dict[str, str] | None = None) -> bytes:
    """Empty where the server refuses the request, or where it has no responder. Silence is neither."""
    body = b"" if payload is None else json.dumps(payload).encode()
    with refusals_of(client).waiting(subject) as refused:
        answering = asyncio.create_task(client.request(subject, body, timeout=ANSWER_SECONDS, headers=headers))
        refusing = asyncio.create_task(refused.wait())
        await asyncio.wait({answering, refusing}, return_when=asyncio.FIRST_COMPLETED)
        for task in (answering, refusing):
            task.cancel()
        answer, _ = await asyncio.gather(answering, refusing, return_exceptions=True)
        if refused.is_set() or isinstance(answer, nats.errors.NoRespondersError):
            return b""
        if isinstance(answer, BaseException):
            raise answer
        return answer.data


async def is_refused(client: Client, subject: str, payload: Any = None) -> bool:
    return await answer_to(client, subject, payload) == b""


async def are_refused(client: Client, asked: Sequence[tuple[str, Any]]) -> bool:
    return all(await asyncio.gather(*(is_refused(client, subject, payload) for subject, payload in asked)))


async def hears(listener: Client, subject: str, speaker: Client, said_on: str) -> bool:
    """The server hands a message on before it answers the speaker's flush, and before it answers the listener's."""
    heard = await listener.subscribe(subject)
    await reach_server(listener)
    await speaker.publish(said_on, b"x")
    await reach_server(speaker)
    await reach_server(listener)
    try:
        return heard.pending_msgs > 0
    finally:
        with suppress(nats.errors.Error):
            await heard.unsubscribe()


async def reach_server(client: Client) -> None:
    """Until the server has all that was sent. The client writes its PING at once, but SUB and PUB a moment later: the
    first answer says nothing yet."""
    await client.flush()
    await client.flush()
