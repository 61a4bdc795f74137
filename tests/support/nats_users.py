"""The users of a nats-server in one test, and what they can ask each other and the server."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client

from gpu_platform.adapters.clock import now_utc
from gpu_platform.adapters.queue.connection import QueueAccess, open_client
from gpu_platform.domain.queue_keyring import Keyring
from gpu_platform.domain.queue_keys import KeyRole, build_seed, public_key_of
from gpu_platform.domain.queue_permissions import Permissions, QueueUser, inbox_prefix_of, sidecar_inbox_prefix
from gpu_platform.domain.queue_subjects import body_subject, queue_subject, record_subject
from gpu_platform.domain.queue_tokens import Credentials, build_user
from tests.support.nats_server import QueueServer, queue_server

WAIT_SECONDS = 0.5
"""A publish that is refused is never answered."""

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


async def answer_to(client: Client, subject: str, payload: Any = None, headers: dict[str, str] | None = None) -> bytes:
    """Empty where nothing comes."""
    body = b"" if payload is None else json.dumps(payload).encode()
    try:
        return (await client.request(subject, body, timeout=WAIT_SECONDS, headers=headers)).data
    except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
        return b""


async def is_refused(client: Client, subject: str, payload: Any = None) -> bool:
    return await answer_to(client, subject, payload) == b""


async def are_refused(client: Client, asked: Sequence[tuple[str, Any]]) -> bool:
    return all(await asyncio.gather(*(is_refused(client, subject, payload) for subject, payload in asked)))


async def hears(listener: Client, subject: str, speaker: Client, said_on: str) -> bool:
    heard = await listener.subscribe(subject)
    await reach_server(listener)
    await speaker.publish(said_on, b"x")
    try:
        await heard.next_msg(timeout=WAIT_SECONDS)
    except nats.errors.TimeoutError:
        return False
    finally:
        with suppress(nats.errors.Error):
            await heard.unsubscribe()
    return True


async def reach_server(client: Client) -> None:
    """Until the server has all that was sent. The client writes its PING at once, but SUB and PUB a moment later: the
    first answer says nothing yet."""
    await client.flush()
    await client.flush()
