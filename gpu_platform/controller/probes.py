"""The probes and the metrics of a process, on listeners of their own: is it alive, is it ready, what has it counted.

They answer on the process's event loop, so that an answer shows that the loop turns; and beside whatever else the
process serves, so that a full public port does not make it look dead. A connection serves one request and has a
deadline; the number of connections is limited.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from gpu_platform.domain.network import is_loopback
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.settings import split_address

CONTACT_SECONDS = 60.0
"""A cache that is well hears from the API server at least every 45 s; see `list_and_watch`."""

CONNECTION_LIMIT = 32
"""Open connections of one listener. The kubelet and Prometheus have one or two each; one more closes the oldest, so
that a client that opens connections and sends nothing does not keep them out."""

CONNECTION_SECONDS = 10.0
"""From the connection to the end of its answer: the default timeout of a scrape."""

STOP_SECONDS = 1.0
"""For the answers under way when the process ends. An answer waits for nothing but its reader."""

Answer = Callable[[], web.Response]


class CannotListenError(Exception):
    """An address is taken, or not one of this machine."""


def find_unready(caches: Sequence[ObjectCache]) -> tuple[str, ...]:
    """One line for each cache that cannot be relied on, with the reason."""
    unsynced = [f"{cache.name}: not listed yet" for cache in caches if not cache.is_synced]
    silent = [
        f"{cache.name}: the API server has been silent for {cache.seconds_since_contact:.0f} s"
        for cache in caches
        if cache.is_synced and cache.seconds_since_contact > CONTACT_SECONDS
    ]
    return (*unsynced, *silent)


def build_probe_answers(unready: Callable[[], Sequence[str]]) -> Mapping[str, Answer]:
    """`unready` returns one line for each reason why the process is not ready."""

    def is_ready() -> web.Response:
        reasons = unready()
        lines = "".join(f"{reason}\n" for reason in reasons or ["ok"])
        return web.Response(text=lines, status=503 if reasons else 200)

    return {"/healthz": lambda: web.Response(text="ok\n"), "/readyz": is_ready}


def build_metrics_answers(render: Callable[[], bytes]) -> Mapping[str, Answer]:
    """`render` returns all metrics in Prometheus' text format."""
    return {"/metrics": lambda: web.Response(body=render(), headers={"Content-Type": CONTENT_TYPE_LATEST})}


class _BoundedServer(web.Server):
    """An aiohttp server with a limit and a deadline for its connections, of which aiohttp has neither."""

    def __init__(self, answers: Mapping[str, Answer], connection_seconds: float, *, is_local: bool) -> None:
        # What is left of a body after its answer is not read.
        super().__init__(self._answer, access_log=None, lingering_time=0)
        self._answers = answers
        self._connection_seconds = connection_seconds
        self._is_local = is_local
        # In the order in which they came.
        self._deadlines: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        if len(self._deadlines) >= CONNECTION_LIMIT:
            oldest = next(iter(self._deadlines))
            self._forget(oldest)
            self._connections[oldest].abort()
        super().connection_made(handler, transport)
        self._deadlines[handler] = asyncio.get_running_loop().call_later(self._connection_seconds, transport.abort)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._forget(handler)
        super().connection_lost(handler, exc)

    def _forget(self, handler: web.RequestHandler) -> None:
        if deadline := self._deadlines.pop(handler, None):
            deadline.cancel()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        answer = self._answers.get(request.path)
        if self._is_local and not _is_local_host(request.host):
            # A web page whose name was pointed to this machine (DNS rebinding) would read the answers.
            response = web.Response(text=f"Host is {request.host!r}; call this address itself\n", status=421)
        elif answer is None:
            response = web.Response(text=f"not found; there are: {', '.join(self._answers)}\n", status=404)
        elif request.method not in ("GET", "HEAD"):
            response = web.Response(text="use GET\n", status=405, headers={"Allow": "GET, HEAD"})
        else:
            response = answer()
        response.force_close()
        return response


@asynccontextmanager
async def served(
    answers: Mapping[str, Answer], address: str, setting: str, *, connection_seconds: float = CONNECTION_SECONDS
) -> AsyncIterator[str]:
    """Serves them by path while the block runs; yields the address, with the real port where 0 was asked for. `setting`
    is the name under which the address was given."""
    host, port = split_address(address)
    runner = web.ServerRunner(
        _BoundedServer(answers, connection_seconds, is_local=is_loopback(host)), shutdown_timeout=STOP_SECONDS
    )
    await runner.setup()
    try:
        await _listen(web.TCPSite(runner, host, port, backlog=CONNECTION_LIMIT), address, setting)
        yield f"{address.rpartition(':')[0]}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _listen(site: web.TCPSite, address: str, setting: str) -> None:
    try:
        await site.start()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CannotListenError(f"cannot listen on {address}: {reason}; choose another {setting}") from error


def _is_local_host(authority: str) -> bool:
    try:
        host = urlsplit(f"//{authority}").hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)
