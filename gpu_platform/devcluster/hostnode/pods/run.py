"""One attempt of one container: its process, its log and its probes.

The pod's worker creates it and hears of it only through reports. It decides nothing about the pod.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from gpu_platform.devcluster.child_process import kill_marked
from gpu_platform.devcluster.hostnode.launch.build import Launch
from gpu_platform.devcluster.hostnode.logs.reader import read_last
from gpu_platform.devcluster.hostnode.logs.writer import LogWriter
from gpu_platform.devcluster.hostnode.names import CONTAINER_MARK
from gpu_platform.devcluster.hostnode.pods.transitions import Ending
from gpu_platform.devcluster.hostnode.processes.child import Child
from gpu_platform.devcluster.hostnode.processes.handlers import Outcome, Target, named_ports, run_handler
from gpu_platform.devcluster.hostnode.processes.probes import Probe, ProbeKind, find_probes
from gpu_platform.devcluster.hostnode.processes.probing import run_probe
from gpu_platform.kube.client import Json

MESSAGE_BYTES = 4_096
LAST_OUTPUT_BYTES = 2_048
LAST_OUTPUT_LINES = 80
"""The termination message and its stand-in, as kubelet bounds them."""


@dataclass(frozen=True)
class Ended:
    container: str
    ending: Ending


@dataclass(frozen=True)
class Probed:
    container: str
    process: int
    """The attempt that was asked: its last answer may come after its end."""
    kind: ProbeKind
    outcome: Outcome
    verdict: bool | None


Report = Ended | Probed


class ContainerRun:
    def __init__(
        self,
        spec: Json,
        launch: Launch,
        *,
        address: str,
        log_path: Path,
        message_path: Path,
        session: aiohttp.ClientSession,
        report: Callable[[Report], None],
    ) -> None:
        """Start the process. Raise `OSError` or `ValueError` if the command cannot be started."""
        self._spec = spec
        self._name: str = spec["name"]
        self._mark = launch.command.environment[CONTAINER_MARK]
        self._target = Target(address, named_ports(spec), launch.exec_command)
        self._session = session
        self._report = report
        self._message_path = message_path
        self._log_path = log_path
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.ended = asyncio.Event()
        message_path.write_bytes(b"")
        self._log = LogWriter(log_path)
        try:
            self._child = Child(launch.command, self._log.write, self._end)
        except (OSError, ValueError):
            self._log.close()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def ensure_probes(self, *, started: bool) -> None:
        if not self.ended.is_set():
            for probe in find_probes(self._spec, started=started):
                self._ensure_task(probe.kind, partial(self._probe, probe))

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM to the group, after the `preStop` hook if there is one and time for it."""
        hook = (self._spec.get("lifecycle") or {}).get("preStop")
        if hook and grace_seconds > 0:
            self._ensure_task("preStop", partial(self._stop_after, hook, grace_seconds))
        else:
            self._child.signal_group(signal.SIGTERM)

    def kill(self) -> None:
        self._child.signal_group(signal.SIGKILL)

    def _ensure_task(self, name: str, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(start())

    async def _probe(self, probe: Probe) -> None:
        async def check() -> Outcome:
            return await run_handler(probe.handler, self._target, self._session, probe.timeout_seconds)

        def report(probe: Probe, outcome: Outcome, verdict: bool | None) -> None:
            self._report(Probed(self._name, self.pid, probe.kind, outcome, verdict))

        await run_probe(probe, check, report)

    async def _stop_after(self, hook: Json, timeout: float) -> None:
        await run_handler(hook, self._target, self._session, timeout)
        self._child.signal_group(signal.SIGTERM)

    def _end(self, code: int) -> None:
        for task in self._tasks.values():
            task.cancel()
        kill_marked(CONTAINER_MARK, self._mark)
        self._log.close()
        self.ended.set()
        self._report(Ended(self._name, Ending(code, self._read_message(code))))

    def _read_message(self, code: int) -> str:
        with suppress(OSError):
            message = self._message_path.read_bytes()[:MESSAGE_BYTES].decode(errors="replace")
            falls_back = self._spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
            if message or code == 0 or not falls_back:
                return message
        return read_last(self._log_path, LAST_OUTPUT_LINES, LAST_OUTPUT_BYTES)
