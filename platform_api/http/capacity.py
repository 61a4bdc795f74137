"""How much of the API process clients may hold: request slots, memory, connections, and time. The decisions are pure
functions. What a request holds in memory is its body, or an answer that its client has not read yet.

The frame opens a holding for each request, and releases it at the request's end. It is found by context, as the
request's id is: what builds an answer has no request at hand.
"""

import contextvars
from collections import Counter, OrderedDict
from enum import StrEnum
from typing import Protocol

from platform_api.http.errors import ApiError, too_many, unavailable
from platform_api.metrics import ApiMetrics

TENANT_SHARE = 4
"""One tenant may hold this part of all slots, streams or proxied calls: a quarter."""

KEYLESS_SHARE = 8
"""Requests without a valid key have slots of their own beside the tenants': an eighth as many. They are answered
without waiting for anything, so that few are enough."""

NEWCOMERS_SHARE = 4
"""Connections that have not shown a valid key may be this part of all before they make room for one another: a quarter.
So a flood of them does not close the idle connections of tenants, and tenants do not keep newcomers out."""

HELD_BYTES = 128 << 20
"""Bytes of bodies and answers that requests may keep in memory together: a quarter of what the API's pod has by
default. While a body is stored or a result is read, there is a second copy of it."""

FREE_BYTES = 64 << 10
"""A body or an answer of this size is not counted: request slots limit them already."""

DRAINING_LIMIT = 32
"""Connections on which an unread body is discarded at the same time. On further ones the sender may miss the answer."""

IDLE_SECONDS = 30
DRAIN_SECONDS = 5.0

DRAIN_PAUSE_SECONDS = 0.01
"""Between two reads of a body that is discarded: a sender of single bytes costs the event loop 100 reads a second."""

DRAINED_BYTES = 32 << 20
DRAINED_READS = 1_000
BODY_SECONDS = 300.0
BODY_BYTES_PER_SECOND = 1_024

ANSWER_BYTES_PER_SECOND = 32 << 10
"""The slowest client that may read a large answer. The page at /docs loads 1.5 MB without a key: within a minute."""


class Phase(StrEnum):
    """A connection is always in one phase. One that stays in it for too long ends like this (`client` is the setting
    `clientTimeoutSeconds`):

    | phase    | begins with                                   | seconds | then               |
    | -------- | --------------------------------------------- | ------- | ------------------ |
    | silent   | the connection                                | client  | closed             |
    | head     | the first byte of a head                      | client  | 408, closed        |
    | request  | the end of a head                             | none    | see below          |
    | idle     | the end of an answer                          | 30      | closed             |
    | draining | the end of an answer to an unread body        | 5       | closed             |
    | closing  | closing, with bytes that the client must read | client  | reset              |

    Within a request, a body is waited for as long as `body_seconds` says, and a client that reads its answer too slowly
    as long as `answer_seconds` says.
    """

    SILENT = "silent"
    HEAD = "head"
    REQUEST = "request"
    IDLE = "idle"
    DRAINING = "draining"
    CLOSING = "closing"


def phase_seconds(phase: Phase, client_seconds: float) -> float | None:
    """Returns how long a connection may be in this phase; None where it is limited elsewhere: bodies by
    `body_seconds`, idle connections by uvicorn's `timeout_keep_alive`."""
    match phase:
        case Phase.SILENT | Phase.HEAD | Phase.CLOSING:
            return client_seconds
        case Phase.DRAINING:
            return DRAIN_SECONDS
        case Phase.IDLE | Phase.REQUEST:
            return None


def body_seconds(received: int, client_seconds: float) -> float:
    """Returns for how long in all a body is waited for of which so many bytes have arrived: 1 KiB/s, at most 5 min.

    | received | client | seconds |
    | -------- | ------ | ------- |
    | 0        | 10     | 10      |
    | 10 KiB   | 10     | 20      |
    | 16 MiB   | 10     | 300     |
    """
    return min(client_seconds + received / BODY_BYTES_PER_SECOND, max(BODY_SECONDS, client_seconds))


def answer_seconds(sent: int, client_seconds: float) -> float:
    """Returns for how long in all an answer waits for its client, of which so many bytes were sent: 32 KiB/s. The time
    in which the client waits for the answer does not count, so that streams go on without a limit.

    | sent    | client | seconds |
    | ------- | ------ | ------- |
    | 0       | 10     | 10      |
    | 1.5 MiB | 10     | 58      |
    | 16 MiB  | 10     | 522     |
    """
    return client_seconds + sent / ANSWER_BYTES_PER_SECOND


def is_drained(size: int, reads: int) -> bool:
    """Whether enough of an unread body was discarded for its sender to have read the answer.

    | bytes    | reads | enough |
    | -------- | ----- | ------ |
    | 20 MiB   | 80    | no     |
    | 32 MiB   | 128   | yes    |
    | 1000     | 1000  | yes    |
    """
    return size >= DRAINED_BYTES or reads >= DRAINED_READS


def share_of(limit: int, part: int = TENANT_SHARE) -> int:
    return max(1, limit // part)


def find_refusal(limit: int, *, own: int, total: int, is_keyless: bool) -> ApiError | None:
    """Returns why a request gets no slot. Its tenant, or all callers without a key, hold `own`; all tenants `total`.

    | limit | own | total | without a key | refusal |
    | ----- | --- | ----- | ------------- | ------- |
    | 512   | 127 | 511   | no            | none    |
    | 512   | 128 | 128   | no            | 429     |
    | 512   | 0   | 512   | no            | 503     |
    | 512   | 63  | 512   | yes           | none    |
    | 512   | 64  | 0     | yes           | 503     |
    """
    if is_keyless:
        is_full = own >= share_of(limit, KEYLESS_SHARE)
        return unavailable("too many requests without a valid API key are under way; try again") if is_full else None
    if own >= (share := share_of(limit)):
        return too_many(f"{own} requests of this tenant are under way, and {share} may be; wait for one to end")
    return unavailable("too many requests are under way; try again") if total >= limit else None


class Slots:
    """The requests that are under way, by tenant."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()
        self._total = 0
        self._keyless = 0

    def take(self, tenant: str | None) -> ApiError | None:
        """Takes a slot for a request of this tenant, None without a valid key; returns the refusal if there is none."""
        own = self._keyless if tenant is None else self._held[tenant]
        refusal = find_refusal(self._limit, own=own, total=self._total, is_keyless=tenant is None)
        if refusal is None:
            self._count(tenant, 1)
        return refusal

    def release(self, tenant: str | None) -> None:
        self._count(tenant, -1)

    def _count(self, tenant: str | None, change: int) -> None:
        if tenant is None:
            self._keyless += change
            return
        self._total += change
        self._held[tenant] += change
        if not self._held[tenant]:
            del self._held[tenant]


def find_bytes_refusal(limit: int, size: int, *, own: int, total: int) -> ApiError | None:
    """Returns why a request may not hold `size` bytes. The others of its tenant hold `own`, all others `total`.

    | limit   | size    | own     | total   | refusal                                |
    | ------- | ------- | ------- | ------- | -------------------------------------- |
    | 128 MiB | 64 KiB  | 32 MiB  | 128 MiB | none: it is not counted                |
    | 128 MiB | 16 MiB  | 16 MiB  | 112 MiB | none                                   |
    | 128 MiB | 17 MiB  | 16 MiB  | 16 MiB  | 429                                    |
    | 128 MiB | 48 MiB  | 0       | 0       | none: one of a tenant may be any size  |
    | 128 MiB | 16 MiB  | 0       | 113 MiB | 503                                    |
    """
    if size <= FREE_BYTES:
        return None
    if own and own + size > (share := share_of(limit)):
        return too_many(
            f"requests of this tenant hold {own} bytes of bodies and unread answers, and they may hold {share}; "
            "wait for one to end"
        )
    return unavailable("too many large requests and answers are under way; try again") if total + size > limit else None


class HeldBytes:
    """The bytes that requests keep in memory, by tenant."""

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self._limit = limit
        self._held: Counter[str | None] = Counter()

    def open(self, tenant: str | None) -> "Held":
        return Held(self, tenant)

    def change(self, tenant: str | None, before: int, after: int) -> None:
        """Raises the refusal of a request that holds `before` and wants to hold `after`."""
        own, total = self._held[tenant] - before, self._held.total() - before
        refusal = find_bytes_refusal(self._limit, after, own=own, total=total)
        if refusal is not None:
            raise refusal
        self._held[tenant] = own + after
        if not self._held[tenant]:
            del self._held[tenant]


class Held:
    """What one request holds."""

    def __init__(self, all_held: HeldBytes, tenant: str | None) -> None:
        self._all_held = all_held
        self._tenant = tenant
        self._size = 0

    def grow_to(self, size: int) -> None:
        """Holds so many bytes in all. Raises the refusal where there is no room for them."""
        if size > max(self._size, FREE_BYTES):
            self._all_held.change(self._tenant, self._size, size)
            self._size = size

    def release(self) -> None:
        self._all_held.change(self._tenant, self._size, 0)
        self._size = 0


current_holding: contextvars.ContextVar[Held | None] = contextvars.ContextVar("holding", default=None)


def hold(size: int) -> None:
    """Counts so many bytes for the current request. Raises the refusal where there is no room for them."""
    if (holding := current_holding.get()) is not None:
        holding.grow_to(size)


def release_held() -> None:
    """For a request that goes on after it has dropped its body."""
    if (holding := current_holding.get()) is not None:
        holding.release()


class Connection(Protocol):
    has_shown_key: bool

    def abort(self) -> None:
        """Closes it at once."""


def is_newcomer_evicted(newcomers: int, known: int, limit: int) -> bool:
    """Whether one of the waiting connections without a valid key makes room, not one that has shown a key.

    | waiting without a key | with one | limit | one without |
    | --------------------- | -------- | ----- | ----------- |
    | 512                   | 1500     | 2048  | yes         |
    | 511                   | 1500     | 2048  | no          |
    | 1                     | 0        | 2048  | yes         |
    """
    return known == 0 or newcomers >= share_of(limit, NEWCOMERS_SHARE)


class Connections:
    """The open connections of the process, at most `limit`. One more evicts the one that has waited longest.

    A limit that refuses newcomers would let a client that opens connections and sends nothing keep all others out.
    There is no limit per source address: behind a load balancer all connections have one.
    """

    def __init__(self, limit: int, metrics: ApiMetrics) -> None:
        self._limit = limit
        self._open: set[Connection] = set()
        self._newcomers: OrderedDict[Connection, None] = OrderedDict()
        self._known: OrderedDict[Connection, None] = OrderedDict()
        self._draining: set[Connection] = set()
        self._metrics = metrics

    def add(self, connection: Connection) -> bool:
        """Returns False where there is no room: every connection has a request under way."""
        if len(self._open) >= self._limit and not self._evict():
            self.count_refused("limit")
            return False
        self._open.add(connection)
        self._metrics.connections.set(len(self._open))
        return True

    def remove(self, connection: Connection) -> None:
        self.mark_busy(connection)
        self._draining.discard(connection)
        self._open.discard(connection)
        self._metrics.connections.set(len(self._open))

    def mark_waiting(self, connection: Connection) -> None:
        """No request is under way on it: it may be evicted. Marked again, it keeps its place in the order."""
        (self._known if connection.has_shown_key else self._newcomers)[connection] = None

    def mark_busy(self, connection: Connection) -> None:
        self._newcomers.pop(connection, None)
        self._known.pop(connection, None)

    def may_drain(self, connection: Connection) -> bool:
        if len(self._draining) >= DRAINING_LIMIT:
            return False
        self._draining.add(connection)
        return True

    def count_refused(self, reason: str) -> None:
        self._metrics.count_refused_connection(reason)

    def _evict(self) -> bool:
        if not self._newcomers and not self._known:
            return False
        is_newcomer = is_newcomer_evicted(len(self._newcomers), len(self._known), self._limit)
        connection = next(iter(self._newcomers if is_newcomer else self._known))
        self.count_refused("limit")
        self.remove(connection)
        connection.abort()
        return True
