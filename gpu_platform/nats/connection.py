"""A connection that waits for its server for as long as it takes, but not for the right to be there."""

import asyncio
import base64
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import DEFAULT_INBOX_PREFIX, Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import DEFAULT_PREFIX

from gpu_platform.nats.credentials import Credentials, parse_credentials, sign
from gpu_platform.nats.errors import QueueAccessError, QueueUnavailableError, translated

log = logging.getLogger(__name__)
CONNECT_SECONDS = 2

PING_SECONDS = 10
"""A server that is there but silent is noticed after two of these."""

ANSWER_SECONDS = 5
CLOSE_SECONDS = 2
RECONNECT_SECONDS = 0.25
FOR_EVER = -1

NO_BUFFER = -1
"""What is sent while the server is away fails at once: a buffer would make it look as if it had arrived."""

RENEWAL_SECONDS = 30.0
"""Between two looks at whether the credentials were replaced."""

REFUSED = "authorization violation"
SCHEMES = ("nats", "tls")
JetStream = JetStreamContext
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class QueueAccess:
    """Where NATS is, and as whom to come there."""

    url: str
    """`tls://` asks for TLS."""

    credentials: Path | None = None
    """A `.creds` file. It may be replaced: who we are is shown anew then, before the old token ends."""

    authority: Path | None = None
    """The certificates to believe; without them those of the machine."""

    @property
    def place(self) -> str:
        """The address for people, without a password that somebody wrote into it."""
        return self.url.rpartition("@")[2]


@asynccontextmanager
async def open_queue(access: QueueAccess, name: str, *, inbox_prefix: str | None = None) -> AsyncIterator[JetStream]:
    """Waits while there is no server. QueueAccessError: the credentials are missing, broken or refused."""
    prefix = _read_credentials(access.credentials).jetstream_prefix if access.credentials else None
    async with open_client(access, name, inbox_prefix=inbox_prefix) as client:
        yield client.jetstream(prefix=prefix or DEFAULT_PREFIX, timeout=ANSWER_SECONDS)


@asynccontextmanager
async def open_client(access: QueueAccess, name: str, *, inbox_prefix: str | None = None) -> AsyncIterator[Client]:
    """The same without JetStream: for the servers' own account."""
    _check_url(access)
    trust = _build_trust(access)
    shown = _Pass(access.credentials) if access.credentials else None
    client = Client()
    doorman = _Doorman(access, client, needs_tls=trust is not None)
    try:
        with translated():
            await client.connect(
                access.url,
                name=name,
                connect_timeout=CONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=2,
                # Less than a second is fine: it is slept for.
                reconnect_time_wait=RECONNECT_SECONDS,  # type: ignore[arg-type]
                max_reconnect_attempts=FOR_EVER,
                allow_reconnect=True,
                pending_size=NO_BUFFER,
                inbox_prefix=inbox_prefix or DEFAULT_INBOX_PREFIX,
                error_cb=doorman.report,
                reconnected_cb=doorman.look_again,
                tls=trust,
                signature_cb=shown.sign if shown else None,
                user_jwt_cb=shown.token if shown else None,
            )
        obey_cancellation()
        doorman.let_in()
        async with _renewing(client, shown):
            yield client
    finally:
        # After a failed handshake it would wait for ever.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()


class _Pass:
    """Who we are, as the file says it at the time of each connection."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._shown = _read_credentials(file)

    def sign(self, nonce: str) -> bytes:
        """The client asks for this first: token and signature are of the same file."""
        self._look()
        return base64.b64encode(sign(self._shown.seed, nonce.encode()))

    def token(self) -> bytes:
        return self._shown.token.encode()

    def look_whether_replaced(self) -> bool:
        before = self._shown
        self._look()
        return self._shown != before

    def _look(self) -> None:
        """While the file cannot be used, what it said last still counts."""
        try:
            self._shown = _read_credentials(self._file)
        except QueueAccessError as error:
            log.warning("queue.credentials_unusable", extra={"error": str(error)})


@asynccontextmanager
async def _renewing(client: Client, shown: _Pass | None) -> AsyncIterator[None]:
    """A connection whose token ends is closed by the server, and the client takes that for the end of everything."""

    async def renew(shown: _Pass) -> None:
        while True:
            await asyncio.sleep(RENEWAL_SECONDS)
            if shown.look_whether_replaced():
                await client.force_reconnect()

    renewing = asyncio.create_task(renew(shown)) if shown else None
    try:
        yield
    finally:
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait({renewing})


class _Doorman:
    """Says what is wrong: at the first connection as an error, where no waiting would help, and later in the log."""

    def __init__(self, access: QueueAccess, client: Client, *, needs_tls: bool) -> None:
        self._access = access
        self._client = client
        self._needs_tls = needs_tls
        self._is_in = False
        self._said = ""

    def let_in(self) -> None:
        if self._is_open_to_listeners():
            raise QueueAccessError(f"{self._access.place} speaks no TLS; without it, nothing is said there")
        self._is_in = True

    async def look_again(self) -> None:
        self._said = ""
        if self._is_open_to_listeners():
            log.error("queue.without_tls", extra={"server": self._access.place})
            await self._client.close()

    async def report(self, error: Exception) -> None:
        # The client asks us after each failed try; without this it would go on to the next one.
        obey_cancellation()
        if not self._is_in and (reason := self._why_not(error)):
            raise QueueAccessError(reason) from error
        # The same again at every attempt: once is enough.
        if (text := str(error) or type(error).__name__) != self._said:
            self._said = text
            log.warning("queue.trouble", extra={"error": text})

    def _why_not(self, error: Exception) -> str | None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{self._access.place} shows a certificate that is not believed: {error.verify_message}"
        if REFUSED in str(error).lower():
            return f"{self._access.place} refuses us; we showed {self._access.credentials or 'no credentials'}"
        return None

    def _is_open_to_listeners(self) -> bool:
        """The client takes the server's word for whether there is TLS, and tells nobody else."""
        return self._needs_tls and not self._client._server_info.get("tls_required")  # noqa: SLF001


def _read_credentials(file: Path) -> Credentials:
    try:
        return parse_credentials(file.read_text())
    except OSError as error:
        raise QueueAccessError(f"{file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise QueueAccessError(f"{file} is not a credentials file of NATS: {error}") from error


def _build_trust(access: QueueAccess) -> ssl.SSLContext | None:
    if access.authority is None and urlsplit(access.url).scheme != "tls":
        return None
    try:
        context = ssl.create_default_context(cafile=access.authority)
    except OSError as error:
        raise QueueAccessError(f"{access.authority} cannot be read as certificates: {error.strerror}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _check_url(access: QueueAccess) -> None:
    parts = urlsplit(access.url)
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise QueueAccessError(f"{access.place} should be tls://host:port or nats://host:port")


def core_of(js: JetStreamContext) -> Client:
    """The connection itself. The library hands it out under no other name."""
    client: Client = js._nc  # noqa: SLF001
    return client


def connected_core_of(js: JetStreamContext) -> Client:
    """For whoever subscribes for a moment. While the client connects again, it keeps a subscription for the server but
    not the end of it: each would stay there for as long as the next connection."""
    client = core_of(js)
    if not client.is_connected:
        raise QueueUnavailableError("NATS is away")
    return client


def prefix_of(js: JetStreamContext) -> str:
    """Under which it asks JetStream: another one where the streams are of another account."""
    prefix: str = js._prefix  # noqa: SLF001
    return prefix


@asynccontextmanager
async def subscribed(
    client: Client, subject: str, take: Callable[[Msg], Awaitable[None]] | None = None
) -> AsyncIterator[Subscription]:
    """A subscription that ends with the block; without `take`, its messages are asked for."""
    with translated():
        subscription = await client.subscribe(subject, cb=take)
    try:
        yield subscription
    finally:
        with suppress(nats.errors.Error):
            await subscription.unsubscribe()


async def run_until_closed(js: JetStreamContext, *duties: Coroutine[Any, Any, None]) -> None:
    """Runs them beside each other. The client itself connects again. It gives up only where it is not let in any
    more."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(duty) for duty in duties]
        while not core_of(js).is_closed:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(LOOK_SECONDS)
        for task in tasks:
            task.cancel()


def obey_cancellation() -> None:
    """For loops, after each question: the client may have taken our own cancellation for a time-out, or have lost it
    because the answer came in the same moment. Who does not obey then goes on for ever.

    `asyncio.wait_for` of Python 3.11 does the latter: whoever is cancelled in the turn of the loop in which the awaited
    thing ends gets its result, or its error, and never hears of the cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
