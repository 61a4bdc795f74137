"""What a daemon answers over HTTP: is it alive, is it ready, what has it counted."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from gpu_platform.adapters.kube.cache import ObjectCache
from gpu_platform.control.metrics import Metrics
from gpu_platform.settings import split_address

CONTACT_SECONDS = 60.0
"""A cache that is well hears from the API server at least every 45 s; see `list_and_watch`."""


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


def build_probe_application(unready: Callable[[], Sequence[str]]) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reasons = unready()
        lines = "".join(f"{reason}\n" for reason in reasons or ["ok"])
        return web.Response(text=lines, status=503 if reasons else 200)

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return application


def build_metrics_application(metrics: Metrics) -> web.Application:
    async def render(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.add_routes([web.get("/metrics", render)])
    return application


@asynccontextmanager
async def served(application: web.Application, address: str) -> AsyncIterator[str]:
    """Serve it while the block runs; gives the address, with the real port where 0 was asked for."""
    host, port = split_address(address)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"{host}:{runner.addresses[0][1]}"
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CannotListenError(f"cannot listen on {address}: {reason}; choose another address") from error
    finally:
        await runner.cleanup()
