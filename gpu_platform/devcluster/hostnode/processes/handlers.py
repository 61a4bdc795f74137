"""Asking or telling a container something: the `exec`, `httpGet`, `tcpSocket` and `sleep` of probes and hooks.

Every call has a time limit and answers with a value: a handler that fails is a fact, not an error. Only loopback is
dialled: nothing that runs on the embedded cluster answers anywhere else.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from gpu_platform.devcluster.hostnode.processes.child import Child, Command
from gpu_platform.domain.hosts import is_loopback
from gpu_platform.kube.client import Json

OUTPUT_BYTES = 1_024
"""Of a failed handler's answer, for its event: enough to read, too little to flood."""


@dataclass(frozen=True)
class Outcome:
    succeeded: bool
    message: str = ""


@dataclass(frozen=True)
class Target:
    """The container that is asked."""

    address: str
    ports: Mapping[str, int]
    build_command: Callable[[list[str]], Command]


def named_ports(container: Json) -> dict[str, int]:
    return {port["name"]: int(port["containerPort"]) for port in container.get("ports") or [] if port.get("name")}


async def run_handler(handler: Json, target: Target, session: aiohttp.ClientSession, timeout: float) -> Outcome:
    try:
        async with asyncio.timeout(timeout):
            return await _run(handler, target, session)
    except TimeoutError:
        return Outcome(False, f"no answer within {timeout:g} s")
    except (OSError, ValueError, aiohttp.ClientError) as error:
        return Outcome(False, f"{type(error).__name__}: {error}")


async def _run(handler: Json, target: Target, session: aiohttp.ClientSession) -> Outcome:
    if action := handler.get("exec"):
        return await _exec(target.build_command(list(action["command"])))
    if action := handler.get("httpGet"):
        return await _http_get(action, target, session)
    if action := handler.get("tcpSocket"):
        return await _tcp_connect(_host(action, target), _port(action["port"], target))
    if action := handler.get("sleep"):
        await asyncio.sleep(action["seconds"])
        return Outcome(True)
    return Outcome(False, "the host node knows exec, httpGet and tcpSocket only")


async def _exec(command: Command) -> Outcome:
    output = bytearray()
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def collect(_: str, data: bytes) -> None:
        output.extend(data[: OUTPUT_BYTES - len(output)])

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    child = Child(command, collect, end)
    try:
        code = await ended
    finally:
        child.signal_group(signal.SIGKILL)
    return Outcome(code == 0, f"exit code {code}: {output.decode(errors='replace').strip()}")


async def _http_get(action: Json, target: Target, session: aiohttp.ClientSession) -> Outcome:
    host = _host(action, target)
    scheme = str(action.get("scheme") or "HTTP").lower()
    path = "/" + str(action.get("path") or "").lstrip("/")
    headers = {"User-Agent": "kube-probe/host-node"}
    headers |= {header["name"]: header["value"] for header in action.get("httpHeaders") or []}
    url = f"{scheme}://{host}:{_port(action['port'], target)}{path}"
    # Redirects are successes to kubelet as well, unless they end in an error on the same host.
    async with session.get(url, headers=headers, allow_redirects=False, ssl=False) as response:
        body = await response.content.read(OUTPUT_BYTES)
    text = body.decode(errors="replace").strip()
    return Outcome(200 <= response.status < 400, f"HTTP status {response.status}: {text}")


async def _tcp_connect(host: str, port: int) -> Outcome:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return Outcome(True)


def _host(action: Json, target: Target) -> str:
    host = str(action.get("host") or target.address)
    if not is_loopback(host):
        raise ValueError(f"host {host!r}: the host node dials loopback addresses only")
    return host


def _port(port: int | str, target: Target) -> int:
    if str(port).isdigit():
        return int(port)
    if port in target.ports:
        return target.ports[str(port)]
    raise ValueError(f"the container has no port named {port!r}")
