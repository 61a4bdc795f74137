"""The processes of one container: its own, those of `exec`, and the probes of it. A pod's worker starts and cancels
them."""

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import IO, Self

import aiohttp

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import is_loopback
from gpu_platform.process import dies_with_parent

HOST_NODE_MARK = "GPU_PLATFORM_DEV_HOST_NODE"
"""Environment variable of every process of every pod: its value is the cluster's id."""

POD_MARK = "GPU_PLATFORM_DEV_POD"
"""The same for one pod: its uid."""

CONTAINER_MARK = "GPU_PLATFORM_DEV_CONTAINER"
"""The same for one container: the pod's uid, a slash, the container's name."""

READ_BYTES = 65_536
"""One read takes what a pipe holds by default."""

LAST_READ_BYTES = 1_048_576
"""Taken after the leader has ended. All of its output fits a pipe; a survivor that keeps writing is cut."""

Sink = Callable[[str, bytes], None]
"""Takes the stream's name (`stdout` or `stderr`) and what came."""

OUTPUT_BYTES = 1_024
"""Of a failed handler's answer, for its event: enough to read, too little to flood."""


@dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str


class Child:
    """A leader in a session of its own. `on_exit` is called once, when the group is dead and all is read.

    It must be used from the main thread: `PR_SET_PDEATHSIG` fires when the thread that forked ends, not when the
    process does.
    """

    def __init__(self, command: Command, sink: Sink, on_exit: Callable[[int], None]) -> None:
        """Raise `OSError` or `ValueError` if the command cannot be started."""
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._on_exit = on_exit
        # The hook between fork and exec is safe because this process has one thread: no lock can be held.
        self._process = subprocess.Popen(
            command.argv,
            env=command.environment,
            cwd=command.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=dies_with_parent(),
        )
        self.pid = self._process.pid
        self.exit_code: int | None = None
        self._streams: dict[str, IO[bytes]] = {}
        for name, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._streams[name] = stream
                self._loop.add_reader(stream.fileno(), self._read, name)
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._finish)

    def signal_group(self, number: signal.Signals) -> None:
        """Does nothing once the leader has been reaped: its number may belong to another process then."""
        if self.exit_code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _read(self, name: str) -> bool:
        """Pass on what is there. False when nothing more can come."""
        try:
            data = os.read(self._streams[name].fileno(), READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close(name)
            return False
        self._sink(name, data)
        return True

    def _close(self, name: str) -> None:
        stream = self._streams.pop(name)
        self._loop.remove_reader(stream.fileno())
        stream.close()

    def _finish(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        # The leader is still a zombie, so its group's number cannot have been given away yet.
        self.signal_group(signal.SIGKILL)
        code = self._process.wait()
        self.exit_code = code if code >= 0 else 128 - code
        for name in tuple(self._streams):
            for _ in range(LAST_READ_BYTES // READ_BYTES):
                if not self._read(name):
                    break
            if name in self._streams:
                self._close(name)
        self._on_exit(self.exit_code)


@dataclass(frozen=True)
class HandlerResult:
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


async def run_handler(handler: Json, target: Target, session: aiohttp.ClientSession, timeout: float) -> HandlerResult:
    try:
        async with asyncio.timeout(timeout):
            return await _run(handler, target, session)
    except TimeoutError:
        return HandlerResult(False, f"no answer within {timeout:g} s")
    except (OSError, ValueError, aiohttp.ClientError) as error:
        return HandlerResult(False, f"{type(error).__name__}: {error}")


async def _run(handler: Json, target: Target, session: aiohttp.ClientSession) -> HandlerResult:
    if action := handler.get("exec"):
        return await _exec(target.build_command(list(action["command"])))
    if action := handler.get("httpGet"):
        return await _http_get(action, target, session)
    if action := handler.get("tcpSocket"):
        return await _tcp_connect(_host(action, target), _port(action["port"], target))
    if action := handler.get("sleep"):
        await asyncio.sleep(action["seconds"])
        return HandlerResult(True)
    return HandlerResult(False, "the host node knows exec, httpGet and tcpSocket only")


async def _exec(command: Command) -> HandlerResult:
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
    return HandlerResult(code == 0, f"exit code {code}: {output.decode(errors='replace').strip()}")


async def _http_get(action: Json, target: Target, session: aiohttp.ClientSession) -> HandlerResult:
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
    return HandlerResult(200 <= response.status < 400, f"HTTP status {response.status}: {text}")


async def _tcp_connect(host: str, port: int) -> HandlerResult:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return HandlerResult(True)


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


class ProbeKind(StrEnum):
    STARTUP = "startup"
    READINESS = "readiness"
    LIVENESS = "liveness"


@dataclass(frozen=True)
class Probe:
    kind: ProbeKind
    handler: Json
    initial_delay_seconds: float
    period_seconds: float
    timeout_seconds: float
    success_threshold: int
    failure_threshold: int

    @classmethod
    def parse(cls, kind: ProbeKind, spec: Json) -> Self:
        """The defaults are those of the API server, which fills them in anyway."""
        return cls(
            kind=kind,
            handler=spec,
            initial_delay_seconds=spec.get("initialDelaySeconds") or 0,
            period_seconds=spec.get("periodSeconds") or 10,
            timeout_seconds=spec.get("timeoutSeconds") or 1,
            success_threshold=spec.get("successThreshold") or 1,
            failure_threshold=spec.get("failureThreshold") or 3,
        )


@dataclass(frozen=True)
class ProbeCount:
    """Results in a row. The verdict is `None` until one of the thresholds has been reached."""

    verdict: bool | None = None
    successes: int = 0
    failures: int = 0

    def after(self, succeeded: bool, probe: Probe) -> Self:
        successes = self.successes + 1 if succeeded else 0
        failures = 0 if succeeded else self.failures + 1
        verdict = self.verdict
        if successes >= probe.success_threshold:
            verdict = True
        if failures >= probe.failure_threshold:
            verdict = False
        return replace(self, verdict=verdict, successes=successes, failures=failures)


def find_probes(container: Json, *, started: bool) -> tuple[Probe, ...]:
    """The probes that are due: the startup probe alone until it has passed, the other two afterwards."""
    kinds = (ProbeKind.READINESS, ProbeKind.LIVENESS) if started else (ProbeKind.STARTUP,)
    return tuple(Probe.parse(kind, spec) for kind in kinds if (spec := container.get(f"{kind}Probe")))


Report = Callable[[Probe, HandlerResult, bool | None], None]
"""Takes each result together with the verdict that holds after it."""


async def run_probe(probe: Probe, check: Callable[[], Awaitable[HandlerResult]], report: Report) -> None:
    """Check and report until cancelled; a startup probe ends with its verdict."""
    await asyncio.sleep(probe.initial_delay_seconds)
    count = ProbeCount()
    while True:
        outcome = await check()
        count = count.after(outcome.succeeded, probe)
        report(probe, outcome, count.verdict)
        if probe.kind is ProbeKind.STARTUP and count.verdict is not None:
            return
        # A little chance keeps the probes of a hundred pods from falling into step.
        await asyncio.sleep(probe.period_seconds * (0.95 + 0.1 * random.random()))
