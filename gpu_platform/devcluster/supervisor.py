"""Keeps the cluster's processes running: starts them in order, restarts what dies or cannot store, stops all of it.

A server whose store takes no more writes is restarted once that mends it: nats-server keeps the write error of a stream
until it ends, so that after a full disk it refuses every write, also when the disk has room again. Its health says so,
and nothing else does.

One supervisor per directory, a process of its own (`python -m gpu_platform.devcluster.supervisor DIRECTORY`).
`lifecycle` starts and stops it; its words are the status file and its log.
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import ssl
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from gpu_platform.devcluster.child_process import CLUSTER_MARK, kill_marked, last_words
from gpu_platform.devcluster.configuration import write_configuration
from gpu_platform.devcluster.credentials import admin_tls
from gpu_platform.devcluster.definitions import ensure_definitions
from gpu_platform.devcluster.directory import ClusterDirectory, try_exclusive_lock
from gpu_platform.devcluster.processes import Finished, HttpReady, NodeReady, ProcessSpec, Store, plan_processes
from gpu_platform.devcluster.record import (
    ClusterPhase,
    ClusterRecord,
    ClusterStatus,
    ProcessStatus,
    get_record,
    write_status,
)
from gpu_platform.domain.conditions import is_true
from gpu_platform.kube import KubeError, open_client
from gpu_platform.kube.paths import LEASES, NODES
from gpu_platform.process import dies_with_parent

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
READY_SECONDS = 60.0
"""For one process to become ready. The slowest, the API server, takes about 4 s on two idle cores."""

STEP_SECONDS = 120.0
"""For a step to end. The slowest, the bootstrap of an empty cluster, takes about 6 s on two idle cores."""

STEP_TRIES = 3
"""Any part that a step needs may die just then; but what is wrong with its settings stays wrong."""

STOP_SECONDS = 6.0
"""Between SIGTERM and SIGKILL; the host node gives its pods' processes 3 of them."""

STORE_SECONDS = 2.0
"""Between two looks at whether a process can still write to its store."""

RESTART_SECONDS = (0.2, 5.0)
"""Delay before a restart: first and longest. It starts over once a process has been ready."""

QUESTION_SECONDS = 2.0

ROOM_BYTES = 64 << 20
"""Free bytes with which a restart is worth it. Chosen by feel: some message blocks of each stream."""

BROKEN = ("write error", "JetStream not enabled")
"""What the health of nats-server says of a state that only a restart ends."""

ALREADY_RUNNING = 3
"""Exit code: another supervisor holds the directory."""

PROBED_SECONDS = 1.0
"""For the lock: a command that asks whether a supervisor runs takes it for a moment."""


class Supervisor:
    def __init__(self, directory: ClusterDirectory, record: ClusterRecord, specs: Sequence[ProcessSpec]) -> None:
        self._directory = directory
        self._record = record
        self._specs = specs
        self._status = ClusterStatus(
            phase="starting",
            supervisor_pid=os.getpid(),
            processes=[
                ProcessStatus(spec.name, spec.address, str(directory.log_of(spec.name))) for spec in self._specs
            ],
        )
        self._by_name = {process.name: process for process in self._status.processes}
        self._ready = {name: asyncio.Event() for name in self._by_name}
        self._log_starts: dict[str, int] = {}
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._tls = admin_tls(directory)

    async def run(self) -> int:
        """Until a signal says stop, or the cluster cannot be started."""
        stop_requested = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
        self._publish("starting")
        keepers = {spec.name: asyncio.create_task(self._keep(spec)) for spec in self._specs}
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

    async def _all_ready(self) -> None:
        for event in self._ready.values():
            await event.wait()

    async def _keep(self, spec: ProcessSpec) -> None:
        """Start the process once its needs are ready, and again whenever it ends."""
        for needed in spec.after:
            await self._ready[needed].wait()
        if spec.needs_definitions:
            await ensure_definitions(self._directory, self._record)
        if isinstance(spec.ready, Finished):
            await self._finish(spec)
        process = self._by_name[spec.name]
        delay = RESTART_SECONDS[0]
        while True:
            if await self._run_once(spec, process):
                delay = RESTART_SECONDS[0]
            elif not self._ready[spec.name].is_set() and delay >= RESTART_SECONDS[1]:
                raise RuntimeError(f"{spec.name} does not start; {self._last_words(process)}")
            await self._pause(process, delay)
            delay = min(delay * 2, RESTART_SECONDS[1])

    async def _finish(self, spec: ProcessSpec) -> None:
        """Run a step until it has ended well once; returns never, as its process never ends by itself."""
        process = self._by_name[spec.name]
        while True:
            child = await self._begin(spec, process)
            try:
                process.exit_code = await asyncio.wait_for(child.wait(), STEP_SECONDS)
            except TimeoutError:
                child.kill()
                process.exit_code = await child.wait()
            process.pid = None
            if process.exit_code == 0:
                break
            if process.restarts + 1 >= STEP_TRIES:
                raise RuntimeError(f"{spec.name} does not succeed; {self._last_words(process)}")
            await self._pause(process, RESTART_SECONDS[0])
        process.state = "done"
        self._ready[spec.name].set()
        self._publish()
        await asyncio.Event().wait()

    async def _pause(self, process: ProcessStatus, delay: float) -> None:
        process.state = "restarting"
        process.restarts += 1
        self._publish()
        await asyncio.sleep(delay)

    def _last_words(self, process: ProcessStatus) -> str:
        """As they are now: the log may be gone with its directory when a person reads the error."""
        log = Path(process.log)
        return f"the last words in {log}:\n{last_words(log, self._log_starts[process.name])}"

    async def _run_once(self, spec: ProcessSpec, process: ProcessStatus) -> bool:
        """Run the process to its end; whether it was ever ready."""
        since = datetime.now(UTC)
        child = await self._begin(spec, process)
        ended = asyncio.create_task(child.wait())
        was_ready = asyncio.create_task(self._wait_ready(spec, since))
        await asyncio.wait({ended, was_ready}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            was_ready.cancel()
        elif was_ready.result():
            process.state = "ready"
            self._ready[spec.name].set()
            self._publish()
            if spec.store is not None:
                await self._end_when_store_is_broken(spec.name, spec.store, child, ended)
        else:
            child.kill()
        process.exit_code = await ended
        process.pid = None
        return not was_ready.cancelled() and was_ready.done() and was_ready.result()

    async def _end_when_store_is_broken(
        self, name: str, store: Store, child: asyncio.subprocess.Process, ended: asyncio.Task[int]
    ) -> None:
        """Returns when the process has ended, by itself or for its restart."""
        while not ended.done():
            if (problem := await observe_restart(store)) is not None:
                log.warning("%s is restarted: %s", name, problem)
                await _end(child)
                return
            await asyncio.wait({ended}, timeout=STORE_SECONDS)

    async def _begin(self, spec: ProcessSpec, process: ProcessStatus) -> asyncio.subprocess.Process:
        with Path(process.log).open("ab") as log:
            self._log_starts[spec.name] = log.tell()
            child = await asyncio.create_subprocess_exec(
                *spec.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory.root,
                start_new_session=True,
                preexec_fn=dies_with_parent(),
                env={**os.environ, **spec.environment, CLUSTER_MARK: self._record.id},
            )
        self._children[spec.name] = child
        process.pid, process.started_at, process.state = child.pid, time.time(), "starting"
        self._publish()
        return child

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
            await _end(child)
        process = self._by_name[spec.name]
        process.state, process.pid = "stopped", None
        self._publish()

    def _publish(self, phase: ClusterPhase | None = None) -> None:
        if phase:
            self._status.phase = phase
        try:
            write_status(self._directory, self._status)
        except OSError as error:
            # On a full disk the status is old, and the processes are kept running all the same.
            log.warning("the status cannot be written: %s", error)


async def is_ready(
    directory: ClusterDirectory, question: HttpReady | NodeReady | Finished, tls: ssl.SSLContext, since: datetime
) -> bool:
    """Whether the process that was started at `since` answers; what an earlier one left behind does not count."""
    match question:
        case HttpReady(url):
            return await _answers(url, tls)
        case NodeReady(name):
            return await _node_is_ready(directory, name, since)
        case Finished():
            # Only its end says so.
            return False


async def _answers(url: str, tls: ssl.SSLContext) -> bool:
    timeout = aiohttp.ClientTimeout(total=QUESTION_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=tls) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _node_is_ready(directory: ClusterDirectory, name: str, since: datetime) -> bool:
    try:
        async with await open_client(directory.kubeconfig) as kube:
            node = await kube.get(NODES.item(name), timeout=QUESTION_SECONDS)
            lease = await kube.get(LEASES.item(name, "kube-node-lease"), timeout=QUESTION_SECONDS)
    except KubeError:
        return False
    renewed_at = datetime.fromisoformat(lease["spec"]["renewTime"])
    return is_true(node, "Ready") and renewed_at >= since


def plan_restart(health: str | None, free_bytes: int) -> str | None:
    """Why the server is to be restarted now; None when it is not.

    | its health                             | room on its disk | restart |
    | -------------------------------------- | ---------------- | ------- |
    | good, or no answer                     | any              | no      |
    | a problem that may pass (it recovers)  | any              | no      |
    | a write error, or JetStream is off     | none             | no: it would come back to the same |
    | a write error, or JetStream is off     | some             | yes     |
    """
    if health is None or free_bytes < ROOM_BYTES or not any(words in health for words in BROKEN):
        return None
    return health


async def observe_restart(store: Store) -> str | None:
    """`plan_restart` for this store, as it is now."""
    return plan_restart(await _read_health(store.health_url), _count_free_bytes(store.directory))


def _count_free_bytes(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0


async def _read_health(url: str) -> str | None:
    """What the server says is wrong; None when nothing is, or it does not answer."""
    timeout = aiohttp.ClientTimeout(total=QUESTION_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            error: str | None = json.loads(await response.text()).get("error")
            return error
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None


async def _end(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    try:
        await asyncio.wait_for(child.wait(), STOP_SECONDS)
    except TimeoutError:
        child.kill()
        await child.wait()


def _first_error(tasks: Iterable[asyncio.Task[None]]) -> str | None:
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()):
            return str(error)
    return None


def supervise(root: Path) -> int:
    directory = ClusterDirectory(root)
    with try_exclusive_lock(directory.supervisor_lock, PROBED_SECONDS) as is_ours:
        if not is_ours:
            return ALREADY_RUNNING
        record = get_record(directory)
        # A supervisor that was killed may have left processes behind, and they hold the ports and the data.
        kill_marked(CLUSTER_MARK, record.id)
        write_configuration(directory, record, datetime.now(UTC))
        specs = plan_processes(directory, record, os.environ.get("PATH", ""))
        code = asyncio.run(Supervisor(directory, record, specs).run())
        kill_marked(CLUSTER_MARK, record.id)
        shutil.rmtree(record.pods, ignore_errors=True)
        return code


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1])))
