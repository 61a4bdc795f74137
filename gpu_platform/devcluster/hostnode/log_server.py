"""The HTTPS server of the node: answers what the API server asks a kubelet for, the logs of containers."""

import ssl
from contextlib import aclosing

from aiohttp import web
from aiohttp.typedefs import Handler

from gpu_platform.clock import now_utc
from gpu_platform.devcluster.hostnode.logs import LogOptions, stream_log
from gpu_platform.devcluster.hostnode.node import HOST_ADDRESS
from gpu_platform.devcluster.hostnode.plan import Container, Waiting
from gpu_platform.devcluster.hostnode.pods import PodSet

API_SERVER_NAME = "kube-apiserver-kubelet-client"
"""The common name of the only client certificate that is let in."""

SHUTDOWN_SECONDS = 0.5
"""For requests under way when the agent stops: a followed log would never end by itself."""


class LogServer:
    def __init__(self, pods: PodSet, tls: ssl.SSLContext) -> None:
        app = web.Application(middlewares=[_admit_api_server])
        app.add_routes(
            [
                web.get("/healthz", _health),
                web.get("/containerLogs/{namespace}/{pod}/{container}", self._container_logs),
            ]
        )
        self._pods = pods
        self._tls = tls
        # Without cancellation a client that went away would leave its follower running.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)

    async def start(self) -> int:
        """Listens on a free port and returns it."""
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST_ADDRESS, 0, ssl_context=self._tls).start()
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
            options = LogOptions.parse(request.query, now_utc())
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
    """Returns the attempt whose log is meant; `ValueError` in kubelet's words if there is none."""
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
