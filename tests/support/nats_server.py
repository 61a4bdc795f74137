"""A nats-server of a test's own, which it may kill and start again on the same data, and its users: what they can ask
each other and the server.
"""

import asyncio
import json
import resource
import secrets
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client

from gpu_platform.clock import now_utc
from gpu_platform.devcluster.record import LOOPBACK
from gpu_platform.nats.connection import QueueAccess, open_client
from gpu_platform.nats.credentials import (
    Credentials,
    Keyring,
    KeyRole,
    build_seed,
    build_user,
    mint_sidecar,
    public_key_of,
)
from gpu_platform.nats.permissions import Permissions, QueueUser, inbox_prefix_of, sidecar_inbox_prefix
from gpu_platform.nats.subjects import body_subject, queue_subject, record_subject
from tests.support.ports import free_port
from tests.support.waiting import eventually

STORED_BYTES = 20 << 30

CONFIGURATION = """\
listen: "{address}"
jetstream {{
  store_dir: "{data}"
  # Not by the size of the disk: what the streams reserve is not written yet.
  max_file_store: {stored_bytes}
  sync_interval: {sync}
}}
{more}
"""


WITHOUT_SIGXFSZ = ("env", "--block-signal=XFSZ")
"""Starts a command that gets an error when it exceeds RLIMIT_FSIZE, as on a full disk. Go programs die of the signal
otherwise."""


def forbid_writes(pid: int) -> None:
    """No file of this process may grow: writes fail as on a full disk, and no other process or user is needed."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def allow_writes(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class QueueServer:
    """Lets everybody in, unless it has a ring of keys."""

    def __init__(
        self,
        directory: Path,
        port: int,
        keyring: Keyring | None = None,
        sync: str = "always",
        more: str = "",
        stored_bytes: int = STORED_BYTES,
    ) -> None:
        self._directory = directory
        self._keyring = keyring
        self._configuration = directory / "nats.conf"
        self._address = f"{LOOPBACK}:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        more += "\n" + (keyring.render_server(now_utc()) if keyring else "")
        self._configuration.write_text(
            CONFIGURATION.format(
                address=self._address, data=directory / "data", sync=sync, more=more, stored_bytes=stored_bytes
            )
        )
        self.url = f"nats://{self._address}"

    def access_of(self, user: QueueUser) -> QueueAccess:
        assert self._keyring is not None
        return self.access_with(user, self._keyring.credentials_of(user, now_utc()).render())

    def sidecar_access(self, tenant: str, function: str) -> QueueAccess:
        assert self._keyring is not None
        credentials = mint_sidecar(self._keyring.workers, tenant, function, now_utc())
        return self.access_with(f"{tenant}_{function}", credentials)

    def access_with(self, name: str, credentials: str) -> QueueAccess:
        file = self._directory / f"{name}.creds"
        file.write_text(credentials)
        return QueueAccess(self.url, file)

    async def start(self) -> None:
        binary = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        assert binary is not None
        command = [*WITHOUT_SIGXFSZ, binary, "--config", str(self._configuration)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        await eventually(self._answers)

    def fill_disk(self) -> None:
        """It can write to no file any more, as on a full disk; the disk itself has room. Restarted, it can."""
        assert self._process is not None
        forbid_writes(self._process.pid)

    def empty_disk(self) -> None:
        assert self._process is not None
        allow_writes(self._process.pid)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    async def _answers(self) -> bool:
        host, _, port = self._address.partition(":")
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


@asynccontextmanager
async def queue_server(
    directory: Path,
    *,
    keyring: Keyring | None = None,
    sync: str = "always",
    more: str = "",
    stored_bytes: int = STORED_BYTES,
) -> AsyncIterator[QueueServer]:
    server = QueueServer(directory, free_port(), keyring, sync, more, stored_bytes)
    await server.start()
    try:
        yield server
    finally:
        server.kill()


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
