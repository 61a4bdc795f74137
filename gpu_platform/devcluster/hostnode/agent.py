"""One run of the agent, from its start to its orderly end: puts the parts together and decides nothing. Its server
answers what the API server asks a kubelet for: logs."""

import asyncio
import ipaddress
import logging
import os
import ssl
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.child_process import CLUSTER_MARK, kill_marked
from gpu_platform.devcluster.hostnode.logs import LogOptions, stream_log
from gpu_platform.devcluster.hostnode.node import HOST_ADDRESS, Heartbeat, PodNetwork, read_machine
from gpu_platform.devcluster.hostnode.plan import Container, Waiting
from gpu_platform.devcluster.hostnode.pod_status import EventRecorder
from gpu_platform.devcluster.hostnode.pods import PodSet, Surroundings
from gpu_platform.devcluster.hostnode.processes import HOST_NODE_MARK
from gpu_platform.devcluster.hostnode.provisioner import Provisioner
from gpu_platform.devcluster.hostnode.times import utc_now
from gpu_platform.kube import KubeError, open_client

API_SERVER_NAME = "kube-apiserver-kubelet-client"
"""The common name of the only client certificate that is let in."""

SHUTDOWN_SECONDS = 0.5
"""For requests under way when the agent stops: a followed log would never end by itself."""

INHERITED_VARIABLES = ("PATH", "LANG", CLUSTER_MARK)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerFiles:
    certificate: Path
    key: Path
    client_ca: Path


class LogServer:
    def __init__(self, pods: PodSet, files: ServerFiles) -> None:
        app = web.Application(middlewares=[_admit_api_server])
        app.add_routes(
            [
                web.get("/healthz", _health),
                web.get("/containerLogs/{namespace}/{pod}/{container}", self._container_logs),
            ]
        )
        self._pods = pods
        self._files = files
        # Without cancellation a client that went away would leave its follower running.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)

    async def start(self) -> int:
        """Listen on a free port and say which."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST_ADDRESS, 0, ssl_context=_ssl_context(self._files))
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _container_logs(self, request: web.Request) -> web.StreamResponse:
        pod, name = request.match_info["pod"], request.match_info["container"]
        worker = self._pods.find(request.match_info["namespace"], pod)
        if worker is None:
            raise web.HTTPNotFound(text=f'pod "{pod}" does not exist')
        if name not in worker.containers:
            raise web.HTTPNotFound(text=f'container "{name}" not found in pod "{pod}"')
        try:
            options = LogOptions.parse(request.query, utc_now())
            attempt = find_attempt(worker.containers[name], previous=options.previous)
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        path = worker.directory.log(name, attempt)
        if not path.exists():
            raise web.HTTPNotFound(text=f'the log of container "{name}" in pod "{pod}" is gone')

        def is_over() -> bool:
            run = worker.runs.get(name)
            return run is None or run.ended.is_set() or worker.containers[name].attempt != attempt

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        async with aclosing(stream_log(path, options, is_over)) as chunks:
            async for chunk in chunks:
                await response.write(chunk)
        return response


def find_attempt(container: Container, *, previous: bool) -> int:
    """The attempt whose log is meant; `ValueError` in kubelet's words if there is none."""
    if previous:
        if container.last is None:
            raise ValueError(f'previous terminated container "{container.name}" not found')
        # While the container waits for its restart, its newest attempt is already the previous one.
        return container.attempt if isinstance(container.state, Waiting) else container.attempt - 1
    if not container.was_started and isinstance(container.state, Waiting):
        raise ValueError(f'container "{container.name}" is waiting to start: {container.state.reason}')
    return container.attempt


@web.middleware
async def _admit_api_server(request: web.Request, handler: Handler) -> web.StreamResponse:
    certificate = request.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if names != [API_SERVER_NAME]:
        raise web.HTTPForbidden(text="only the API server may ask the host node")
    return await handler(request)


async def _health(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _ssl_context(files: ServerFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.client_ca)
    context.load_cert_chain(files.certificate, files.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass(frozen=True)
class AgentSettings:
    kubeconfig: Path
    root: Path
    server_files: ServerFiles
    gpus: int
    cluster: str
    admin_kubeconfig: Path
    volumes: Path


async def run_agent(settings: AgentSettings, stop: asyncio.Event) -> None:
    """Run until `stop` is set. Raise `DevClusterError` for what the developer has to change first."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await open_client(settings.kubeconfig))
        check_is_local(client.server)
        network = PodNetwork.reserve(settings.cluster)
        stack.callback(network.close)
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        end_leftovers(settings.cluster)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        machine = read_machine(settings.gpus)
        recorder = EventRecorder(client)
        inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        inherited[HOST_NODE_MARK] = settings.cluster
        pods = PodSet(settings.root, network, Surroundings(client, recorder, session, machine.capacity, inherited))
        server = LogServer(pods, settings.server_files)
        stack.push_async_callback(server.stop)
        heartbeat = Heartbeat(client, machine, await server.start())
        admin = await stack.enter_async_context(await open_client(settings.admin_kubeconfig))
        check_is_local(admin.server)
        provisioner = Provisioner(admin, settings.volumes)
        log.info("pods get addresses in 127.%d.0.0/16", network.number)

        tasks = [asyncio.create_task(part.run()) for part in (heartbeat, pods, recorder, provisioner)]
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(KubeError):
            await heartbeat.stop()
        await pods.stop()
        end_leftovers(settings.cluster)


def end_leftovers(cluster: str) -> None:
    """Processes of pods whose leader or agent is gone."""
    if count := kill_marked(HOST_NODE_MARK, cluster):
        log.info("ended %d leftover processes", count)


def check_is_local(server: str) -> None:
    """Refuse a cluster that is not this machine's own: pods run here as the developer, without isolation."""
    host = urlsplit(server).hostname or ""
    if host == "localhost":
        return
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    raise DevClusterError(
        f"the host node is for development only and serves an API server on this machine, not {server}: "
        "give it the kubeconfig of an embedded cluster"
    )
