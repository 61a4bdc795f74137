"""The process: puts the parts together, serves them, and ends them in order."""

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from gpu_platform.clock import now_utc
from gpu_platform.controller.probes import CannotListenError, build_metrics_answers, build_probe_answers, served
from gpu_platform.kube import KubeClient, KubeError, NoConnectionError, open_client
from gpu_platform.kube.informer import WatchTiming
from gpu_platform.process import running
from gpu_platform.settings import split_address
from platform_api.app import create_app
from platform_api.auth.keys import KeyRing
from platform_api.auth.rate_limit import FailedLogins, Rate, RateLimit, WriteLimit
from platform_api.cluster import Cluster
from platform_api.deps import Deps, Services
from platform_api.functions.service import FunctionService
from platform_api.gpu_units.service import UnitService
from platform_api.health.collector import register_platform_metrics
from platform_api.health.gpu_readings import GpuReader
from platform_api.health.service import find_unready, report_for_ever
from platform_api.http.capacity import IDLE_SECONDS, Connections
from platform_api.http.connections import build_protocol
from platform_api.http.streams import Streams
from platform_api.invocations.limits import QueueCounts
from platform_api.invocations.service import InvocationService
from platform_api.metrics import ApiMetrics
from platform_api.nats_connection import QueueLink, build_queue_link
from platform_api.objects.tenant_limits import ObjectLimits, TenantLimitReader
from platform_api.proxy.forwarding import Forwarder
from platform_api.settings import ApiSettings
from platform_api.stacks.drift import DriftTracker
from platform_api.storages.service import StorageService

log = logging.getLogger(__name__)

COMPONENT = "gpu-platform-api"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOP_SECONDS = 5
"""For the requests under way; a stream is cut then."""

UNSENT_BYTES = 64 << 10
"""What the kernel takes of an answer before it is sent."""

FIRST_CONTACT_SECONDS = 10.0
"""How long `kubeMode: required` waits for Kubernetes at the start."""


class NoClusterError(Exception):
    """`kubeMode` is required, and there is no Kubernetes."""


async def run_api(settings: ApiSettings) -> None:
    """Until SIGTERM or SIGINT."""
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(_listen(settings.http_addr))
        client = await _connect(settings, stack)
        deps = build_deps(settings, client)
        register_platform_metrics(deps.metrics.registry, deps)
        server = _Server(_server_config(create_app(deps), settings, deps.metrics))
        host, port = listener.getsockname()[:2]
        probes = await stack.enter_async_context(
            served(build_probe_answers(lambda: server.find_unready(deps)), settings.probe_address, "probeAddress")
        )
        scraped = await stack.enter_async_context(
            served(build_metrics_answers(deps.metrics.render), settings.metrics_address, "metricsAddress")
        )
        log.info(
            "api.started",
            extra={
                "address": f"{host}:{port}",
                "server": client.server if client else None,
                "probes": probes,
                "metrics": scraped,
            },
        )
        await stack.enter_async_context(running(_background(deps, client)))
        await server.serve(sockets=[listener])
        log.info("api.stopped")


def build_deps(settings: ApiSettings, client: KubeClient | None) -> Deps:
    write_limit = WriteLimit()
    metrics = ApiMetrics()
    queue = build_queue_link(settings, f"{COMPONENT}/{os.getpid()}")
    limits = TenantLimitReader(settings.tenant_limits)
    cluster = Cluster(client, WatchTiming(settings.resync), write_limit.charge) if client else None
    return Deps(
        settings=settings,
        services=_build_services(settings, cluster, queue, limits, metrics) if cluster else None,
        queue=queue,
        gpus=GpuReader(settings.nvidia_metrics_endpoint, now_utc),
        key_ring=KeyRing(now_utc),
        limits=limits,
        rate_limit=RateLimit(Rate(settings.requests_per_second, settings.burst)),
        write_limit=write_limit,
        failed_logins=FailedLogins(settings.failed_logins_per_minute),
        streams=Streams(settings.max_streams, metrics),
        forwarder=Forwarder(
            settings.max_proxied,
            settings.proxy_idle_seconds,
            metrics,
            public_scheme=urlsplit(settings.public_url).scheme if settings.public_url else None,
        ),
        metrics=metrics,
        now=now_utc,
        started_at=now_utc(),
    )


def _build_services(
    settings: ApiSettings, cluster: Cluster, queue: QueueLink, limits: TenantLimitReader, metrics: ApiMetrics
) -> Services:
    counts = QueueCounts(queue)
    objects = ObjectLimits(cluster, limits.of)
    development = settings.development_addresses
    return Services(
        cluster=cluster,
        units=UnitService(cluster, objects, metrics, now_utc, development_addresses=development),
        storages=StorageService(cluster, objects, now_utc, development_addresses=development),
        functions=FunctionService(cluster, objects, now_utc, counts.read if queue.is_configured else None),
        invocations=InvocationService(cluster, queue, counts, settings, limits, metrics, now_utc),
        drift=DriftTracker(cluster, now_utc),
    )


async def _connect(settings: ApiSettings, stack: AsyncExitStack) -> KubeClient | None:
    if settings.kube_mode == "off":
        return None
    try:
        opened = await open_client(settings.kubeconfig, f"{COMPONENT}/{os.getpid()}")
    except NoConnectionError as error:
        if settings.kube_mode == "required":
            raise NoClusterError(str(error)) from error
        log.warning("kubernetes.none", extra={"error": str(error)})
        return None
    client = await stack.enter_async_context(opened)
    if settings.kube_mode == "required":
        await _first_contact(client)
    return client


async def _first_contact(client: KubeClient) -> None:
    try:
        await client.text("/readyz", timeout=FIRST_CONTACT_SECONDS)
    except KubeError as error:
        raise NoClusterError(f"kubeMode is required, and Kubernetes does not answer: {error.message}") from error


def _background(deps: Deps, client: KubeClient | None) -> Iterable[Coroutine[Any, Any, None]]:
    yield report_for_ever(deps, deps.settings.report_interval_seconds)
    yield deps.queue.run()
    yield deps.gpus.run()
    if deps.cluster is not None and client is not None:
        yield deps.cluster.run()
        yield deps.key_ring.follow(client)
        yield deps.limits.follow(client)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own way raises the signal again at its end, which would kill us before we have ended in order."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def find_unready(self, deps: Deps) -> tuple[str, ...]:
        """Returns why this process should get no requests. The probes are answered before the public port listens, and
        while it is closed at the end."""
        if self.should_exit:
            return ("it is stopping",)
        return find_unready(deps) if self.started else ("it does not listen yet",)


def _server_config(application: Any, settings: ApiSettings, metrics: ApiMetrics) -> uvicorn.Config:
    connections = Connections(_limit_connections(settings.max_connections), metrics)
    return uvicorn.Config(
        application,
        http=build_protocol(connections, settings.client_timeout_seconds),
        # Anybody could say anything about where a call comes from.
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        log_level=settings.log_level,
    )


def _limit_connections(wanted: int) -> int:
    """Returns at most half the file descriptors: the others are for connections to Kubernetes, NATS and units."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if descriptors == resource.RLIM_INFINITY else min(wanted, descriptors // 2)


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    # Named as TCP: asyncio turns off Nagle's algorithm only then. With it, the body of an answer would wait for the
    # client's acknowledgement of the headers, which clients hold back for 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Of each connection. Without it the kernel takes megabytes of an answer that its client does not read, which count
    # as the pod's memory.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CannotListenError(f"cannot listen on {address}: {error.strerror}; choose another httpAddr") from error
    return listener
