"""Keeps the cluster's processes running: starts them in order, restarts what dies, stops all of it at the end.

One supervisor per directory, a process of its own (`python -m gpu_platform.devcluster.supervisor DIRECTORY`).
`lifecycle` starts and stops it; its words are the status file and its log.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from gpu_platform.adapters.kube import KubeError
from gpu_platform.devcluster.base_objects import apply_base_objects
from gpu_platform.devcluster.child_process import CLUSTER_MARK, dies_with_parent, kill_marked
from gpu_platform.devcluster.configuration import write_configuration
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.locks import try_exclusive_lock
from gpu_platform.devcluster.processes import BASE_OBJECTS, ProcessSpec, plan_processes
from gpu_platform.devcluster.readiness import admin_tls, is_ready
from gpu_platform.devcluster.record import ClusterRecord, get_record
from gpu_platform.devcluster.status import ClusterPhase, ClusterStatus, ProcessStatus, write_status

POLL_SECONDS = 0.05
READY_SECONDS = 60.0
"""For one process to become ready. The slowest, the API server, takes about 4 s on two idle cores."""

STOP_SECONDS = 6.0
"""Between SIGTERM and SIGKILL; the host node gives its pods' processes 3 of them."""

RESTART_SECONDS = (0.2, 5.0)
"""Delay before a restart: first and longest. It starts over once a process has been ready."""

ALREADY_RUNNING = 3
"""Exit code: another supervisor holds the directory."""


class Supervisor:
    def __init__(self, directory: ClusterDirectory, record: ClusterRecord) -> None:
        self._directory = directory
        self._record = record
        self._specs = plan_processes(directory, record)
        self._status = ClusterStatus(
            phase="starting",
            supervisor_pid=os.getpid(),
            processes=[
                ProcessStatus(spec.name, spec.address, str(directory.log_of(spec.name))) for spec in self._specs
            ],
        )
        self._by_name = {process.name: process for process in self._status.processes}
        self._ready = {name: asyncio.Event() for name in (BASE_OBJECTS, *self._by_name)}
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._tls = admin_tls(directory)

    async def run(self) -> int:
        """Until a signal says stop, or the cluster cannot be started."""
        stop_requested = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
        self._publish("starting")
        keepers = {spec.name: asyncio.create_task(self._keep(spec)) for spec in self._specs}
        keepers[BASE_OBJECTS] = asyncio.create_task(self._apply_base_objects())
        stopping = asyncio.create_task(stop_requested.wait())
        started = asyncio.create_task(self._all_ready())
        try:
            await asyncio.wait({stopping, started, *keepers.values()}, return_when=asyncio.FIRST_COMPLETED)
            if started.done() and not stop_requested.is_set():
                self._publish("ready")
                await asyncio.wait({stopping, *keepers.values()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            error = _first_error(keepers.values())
            self._publish("stopping")
            await self._stop_all(keepers)
            for task in (stopping, started):
                task.cancel()
            self._status.error = error
            self._publish("failed" if error else "stopped")
        return 1 if error else 0

    async def _apply_base_objects(self) -> None:
        await self._ready["kube-apiserver"].wait()
        deadline = time.monotonic() + READY_SECONDS
        while self._record.platform:
            try:
                await apply_base_objects(self._directory.kubeconfig, self._record.api_key)
                break
            except KubeError:
                # A young API server refuses now and then, and any of its parts may die just now.
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(RESTART_SECONDS[0])
        self._ready[BASE_OBJECTS].set()
        await asyncio.Event().wait()

    async def _all_ready(self) -> None:
        for event in self._ready.values():
            await event.wait()

    async def _keep(self, spec: ProcessSpec) -> None:
        """Start the process once its needs are ready, and again whenever it ends."""
        for needed in spec.after:
            await self._ready[needed].wait()
        process = self._by_name[spec.name]
        delay = RESTART_SECONDS[0]
        while True:
            if await self._run_once(spec, process):
                delay = RESTART_SECONDS[0]
            elif not self._ready[spec.name].is_set() and delay >= RESTART_SECONDS[1]:
                raise RuntimeError(f"{spec.name} does not start; its last words are in {process.log}")
            process.state = "restarting"
            process.restarts += 1
            self._publish()
            await asyncio.sleep(delay)
            delay = min(delay * 2, RESTART_SECONDS[1])

    async def _run_once(self, spec: ProcessSpec, process: ProcessStatus) -> bool:
        """Run the process to its end; whether it was ever ready."""
        since = datetime.now(UTC)
        child = await self._start(spec)
        self._children[spec.name] = child
        process.pid, process.started_at, process.state = child.pid, time.time(), "starting"
        self._publish()
        ended = asyncio.create_task(child.wait())
        was_ready = asyncio.create_task(self._wait_ready(spec, since))
        await asyncio.wait({ended, was_ready}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            was_ready.cancel()
        elif was_ready.result():
            process.state = "ready"
            self._ready[spec.name].set()
            self._publish()
        else:
            child.kill()
        process.exit_code = await ended
        process.pid = None
        return not was_ready.cancelled() and was_ready.done() and was_ready.result()

    async def _start(self, spec: ProcessSpec) -> asyncio.subprocess.Process:
        with Path(self._by_name[spec.name].log).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *spec.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory.root,
                start_new_session=True,
                preexec_fn=dies_with_parent(),
                env={**os.environ, **spec.environment, CLUSTER_MARK: self._record.id},
            )

    async def _wait_ready(self, spec: ProcessSpec, since: datetime) -> bool:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if await is_ready(self._directory, spec.ready, self._tls, since):
                return True
            await asyncio.sleep(POLL_SECONDS)
        return False

    async def _stop_all(self, keepers: dict[str, asyncio.Task[None]]) -> None:
        """Latest first, each only after all that need it are gone."""
        for task in keepers.values():
            task.cancel()
        await asyncio.gather(*keepers.values(), return_exceptions=True)
        gone = {spec.name: asyncio.Event() for spec in self._specs}

        async def stop_after_dependants(spec: ProcessSpec) -> None:
            for other in self._specs:
                if spec.name in other.after:
                    await gone[other.name].wait()
            await self._stop(spec)
            gone[spec.name].set()

        await asyncio.gather(*(stop_after_dependants(spec) for spec in self._specs))

    async def _stop(self, spec: ProcessSpec) -> None:
        child = self._children.get(spec.name)
        if child is not None and child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), STOP_SECONDS)
            except TimeoutError:
                child.kill()
                await child.wait()
        process = self._by_name[spec.name]
        process.state, process.pid = "stopped", None
        self._publish()

    def _publish(self, phase: ClusterPhase | None = None) -> None:
        if phase:
            self._status.phase = phase
        write_status(self._directory, self._status)


def _first_error(tasks: Iterable[asyncio.Task[None]]) -> str | None:
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()):
            return str(error)
    return None


def supervise(root: Path) -> int:
    directory = ClusterDirectory(root)
    with try_exclusive_lock(directory.supervisor_lock) as is_ours:
        if not is_ours:
            return ALREADY_RUNNING
        record = get_record(directory)
        # A supervisor that was killed may have left processes behind, and they hold the ports and the data.
        kill_marked(CLUSTER_MARK, record.id)
        write_configuration(directory, record, datetime.now(UTC))
        code = asyncio.run(Supervisor(directory, record).run())
        kill_marked(CLUSTER_MARK, record.id)
        shutil.rmtree(record.pods, ignore_errors=True)
        return code


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1])))
