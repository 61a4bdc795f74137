"""The pods of this node: which there are, one worker for each, and one run for each of its containers."""

import asyncio
import logging
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from gpu_platform.clock import now_utc
from gpu_platform.devcluster.child_process import kill_marked
from gpu_platform.devcluster.hostnode.launch import Launch, build_launch, check_support
from gpu_platform.devcluster.hostnode.logs import LogWriter, read_last
from gpu_platform.devcluster.hostnode.node import NODE_NAME, POD_ADDRESS_ANNOTATION, PodNetwork
from gpu_platform.devcluster.hostnode.plan import (
    Action,
    Ending,
    Kill,
    Outcome,
    Running,
    Start,
    Stop,
    StopRequest,
    Waiting,
    after_exit,
    after_kill,
    after_probe,
    after_refusal,
    after_start,
    after_stop,
    find_end,
    init_specs,
    main_specs,
    plan_pod,
    plan_stop_request,
    restarts_after,
    restore_containers,
)
from gpu_platform.devcluster.hostnode.pod_status import EventRecorder, build_status, plan_patch
from gpu_platform.devcluster.hostnode.processes import (
    CONTAINER_MARK,
    Child,
    HandlerResult,
    Probe,
    ProbeKind,
    Target,
    find_probes,
    named_ports,
    run_handler,
    run_probe,
)
from gpu_platform.devcluster.hostnode.sources import (
    CannotStartError,
    NodeFacts,
    SourceReader,
    find_env_references,
    find_volume_references,
)
from gpu_platform.devcluster.hostnode.volumes import PodDirectory, directory_name, is_directory_name, write_volumes
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import ConflictError, KubeClient, KubeError, NotFoundError, PatchType, WatchEvent, list_and_watch
from gpu_platform.kube.paths import PODS

MESSAGE_BYTES = 4_096
LAST_OUTPUT_BYTES = 2_048

LAST_OUTPUT_LINES = 80
"""The termination message and its stand-in, as kubelet bounds them."""

REFRESH = timedelta(seconds=60)
"""Between two looks at what is behind a running pod's volumes, as in kubelet."""

RETRY = (timedelta(seconds=0.2), timedelta(seconds=5))
"""After a failed pass, from and to: soon, because an API server that restarts is back soon."""

STATUS_TIMEOUT = 5.0
"""Seconds. A pod's processes are looked after in the same task, so a silent API server must not hold it."""

START_ERROR = 128
"""The exit code that container runtimes give to a command that could not be started."""

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0

STOP_SECONDS = 2.0
"""Grace for processes when the agent is told to stop: its supervisor waits about 5 s for all of it."""


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
    outcome: HandlerResult
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
        """Starts the process. Raises `OSError` or `ValueError` if the command cannot be started."""
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
        """Sends SIGTERM to the group, after the `preStop` hook if there is one and time for it."""
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
        async def check() -> HandlerResult:
            return await run_handler(probe.handler, self._target, self._session, probe.timeout_seconds)

        def report(probe: Probe, outcome: HandlerResult, verdict: bool | None) -> None:
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


@dataclass(frozen=True)
class Surroundings:
    """What all pods of the node share."""

    client: KubeClient
    recorder: EventRecorder
    session: aiohttp.ClientSession
    allocatable: Mapping[str, str]
    inherited: Mapping[str, str]
    """The variables that every process gets from the agent."""


class PodWorker:
    def __init__(self, pod: Json, address: str, directory: PodDirectory, node: Surroundings) -> None:
        self.pod = pod
        self.directory = directory
        self.containers = restore_containers(pod, now_utc(), is_intact=directory.path.exists())
        self.runs: dict[str, ContainerRun] = {}
        self._address = address
        self._node = node
        self._facts = NodeFacts(address, node.allocatable)
        self._sources = SourceReader(node.client, pod)
        self._specs: dict[str, Json] = {spec["name"]: spec for spec in [*init_specs(pod), *main_specs(pod)]}
        self._reports: list[Report] = []
        self._wake = asyncio.Event()
        self._request: StopRequest | None = None
        self._refresh_at: datetime | None = None
        self._is_gone = False
        self._is_released = False
        self._is_finished = False

    def observe(self, pod: Json) -> None:
        self.pod = pod
        self._wake.set()

    def vanish(self) -> None:
        """Notes that the API no longer has the pod."""
        self._is_gone = True
        self._wake.set()

    async def run(self) -> None:
        """Runs until the pod is deleted and nothing of it is left."""
        delay = RETRY[0]
        while not self._is_finished:
            self._wake.clear()
            try:
                wake_at = await self._pass(now_utc())
                delay = RETRY[0]
            except Exception as error:
                log.warning("pod %s: %s", self._name, error, exc_info=not isinstance(error, KubeError))
                wake_at = now_utc() + delay
                delay = min(delay * 2, RETRY[1])
            await self._sleep(wake_at)

    async def _pass(self, now: datetime) -> datetime | None:
        # First, because an end in a pod that is asked to stop is final.
        self._request = plan_stop_request(self.pod, self._request, now, is_gone=self._is_gone)
        self._take_reports(now)
        plan = plan_pod(self.pod, self.containers, self._request, now)
        for action in plan.actions:
            await self._apply(action, now)
        if plan.actions:
            return now
        self._ensure_probes()
        if self._is_gone and plan.outcome:
            self.directory.remove()
            self._is_finished = True
            return now
        if self._is_gone or self._is_released:
            return plan.wake_at
        await self._publish(plan.outcome, now)
        if plan.outcome and self._request:
            await self._release()
        times = (plan.wake_at, await self._refresh_volumes(now))
        return min((at for at in times if at), default=None)

    async def _sleep(self, until: datetime | None) -> None:
        seconds = None if until is None else max((until - now_utc()).total_seconds(), 0)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    def _take_reports(self, now: datetime) -> None:
        reports, self._reports = self._reports, []
        for report in reports:
            match report:
                case Ended():
                    self._take_end(report, now)
                case Probed():
                    self._take_probe(report)

    def _take_end(self, report: Ended, now: datetime) -> None:
        name = report.container
        del self.runs[name]
        pod_ends = self._request is not None or find_end(self.pod, self.containers) is not None
        restarts = not pod_ends and restarts_after(self.pod, self._specs[name], report.ending.exit_code)
        container = after_exit(self.containers[name], report.ending, restarts=restarts, now=now)
        self.containers[name] = container
        if isinstance(container.state, Waiting) and container.crashes > 1:
            self._node.recorder.record(self.pod, "Warning", "BackOff", container.state.message, name)

    def _take_probe(self, report: Probed) -> None:
        container = self.containers[report.container]
        if not isinstance(container.state, Running) or container.state.process != report.process:
            return
        message = report.outcome.message
        if not report.outcome.succeeded:
            self._node.recorder.record(
                self.pod, "Warning", "Unhealthy", f"{report.kind} probe failed: {message}", report.container
            )
        self.containers[report.container] = after_probe(
            container, report.kind, report.verdict, message, self._specs[report.container]
        )

    def _report(self, report: Report) -> None:
        self._reports.append(report)
        self._wake.set()

    async def _apply(self, action: Action, now: datetime) -> None:
        name = action.container
        match action:
            case Start():
                await self._start(name, now)
            case Stop(grace=grace, why=why):
                self.runs[name].stop(grace.total_seconds())
                self.containers[name] = after_stop(self.containers[name], grace, now)
                self._node.recorder.record(self.pod, "Normal", "Killing", f"stopping: {why}", name)
            case Kill():
                self.runs[name].kill()
                self.containers[name] = after_kill(self.containers[name])

    async def _start(self, name: str, now: datetime) -> None:
        spec, container = self._specs[name], self.containers[name]
        try:
            launch = await self._prepare(spec, now)
        except CannotStartError as error:
            self._node.recorder.record(self.pod, "Warning", "Failed", error.message, name)
            self.containers[name] = after_refusal(container, error, now)
            return
        started = after_start(container, spec, 0, now)
        self.directory.forget_logs(name, before=started.attempt - 1)
        try:
            run = ContainerRun(
                spec,
                launch,
                address=self._address,
                log_path=self.directory.log(name, started.attempt),
                message_path=self.directory.termination_message(name),
                session=self._node.session,
                report=self._report,
            )
        except (OSError, ValueError) as error:
            ending = Ending(START_ERROR, f"cannot start {launch.command.argv[0]!r}: {error}", "StartError")
            restarts = restarts_after(self.pod, spec, START_ERROR)
            self.containers[name] = after_exit(started, ending, restarts=restarts, now=now)
            self._node.recorder.record(self.pod, "Warning", "Failed", ending.message, name)
            return
        self.runs[name] = run
        self.containers[name] = after_start(container, spec, run.pid, now_utc())
        self._node.recorder.record(self.pod, "Normal", "Started", f"started process {run.pid}", name)

    async def _prepare(self, spec: Json, now: datetime) -> Launch:
        pod = self.pod
        check_support(pod, spec)
        sources = await self._sources.read(find_volume_references(pod) | find_env_references(spec), now)
        write_volumes(pod, sources, self._facts, self.directory)
        launch = build_launch(
            pod,
            spec,
            sources=sources,
            facts=self._facts,
            directory=self.directory,
            inherited=self._node.inherited,
        )
        for path in launch.subpaths:
            if not path.exists():
                path.mkdir(parents=True)
        return launch

    async def _refresh_volumes(self, now: datetime) -> datetime | None:
        """Follows changed ConfigMaps and Secrets, and renews tokens, while something runs."""
        is_due = self._refresh_at is not None and now >= self._refresh_at
        if not self.runs:
            self._refresh_at = None
        elif self._refresh_at is None or is_due:
            self._refresh_at = now + REFRESH
        if self.runs and is_due:
            with suppress(CannotStartError):
                pod = self.pod
                write_volumes(
                    pod, await self._sources.read(find_volume_references(pod), now), self._facts, self.directory
                )
        return self._refresh_at

    def _ensure_probes(self) -> None:
        for name, run in self.runs.items():
            state = self.containers[name].state
            if isinstance(state, Running):
                run.ensure_probes(started=state.started)

    async def _publish(self, outcome: Outcome | None, now: datetime) -> None:
        pod = self.pod
        status = build_status(pod, self.containers, self._address, outcome, now)
        patch = plan_patch(pod, status, self._address)
        if patch is None:
            return
        path = PODS.item(self._name, self._namespace, "status")
        try:
            answer = await self._node.client.patch(path, patch, PatchType.STRATEGIC, timeout=STATUS_TIMEOUT)
        except (NotFoundError, ConflictError):
            # The pod is gone, and the watch will say so.
            return
        if self.pod is pod:
            self.pod = answer

    async def _release(self) -> None:
        """Deletes the pod from the API server, once its processes have ended."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod["metadata"]["uid"]}}
        with suppress(NotFoundError, ConflictError):
            await self._node.client.delete(PODS.item(self._name, self._namespace), options)
        self.directory.remove()
        self._is_released = True

    @property
    def _name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def _namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])


class PodSet:
    def __init__(self, root: Path, network: PodNetwork, node: Surroundings) -> None:
        self._root = root
        self._network = network
        self._node = node
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._listed: set[str] = set()

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """Returns the newest pod of that name: an older one may still be ending."""
        for worker in reversed(self._workers.values()):
            metadata = worker.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return worker
        return None

    async def run(self) -> None:
        while True:
            selector = {"fieldSelector": f"spec.nodeName={NODE_NAME}"}
            try:
                async with aclosing(list_and_watch(self._node.client, PODS.collection(), selector)) as events:
                    async for event in events:
                        self._take(event)
            except Exception:
                log.exception("following the node's pods failed")
            await asyncio.sleep(RETRY_SECONDS)

    async def stop(self) -> None:
        """Ends every process: SIGTERM, a short grace, SIGKILL. The pods' status is left for the next agent."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for run in self._runs():
            run.stop(0)
        await self._wait_for_ends(STOP_SECONDS)
        for run in self._runs():
            run.kill()
        await self._wait_for_ends(STOP_SECONDS / 4)

    def _runs(self) -> Iterator[ContainerRun]:
        for worker in self._workers.values():
            yield from worker.runs.values()

    async def _wait_for_ends(self, seconds: float) -> None:
        ends = [asyncio.create_task(run.ended.wait()) for run in self._runs()]
        if ends:
            _, late = await asyncio.wait(ends, timeout=seconds)
            for task in late:
                task.cancel()

    def _take(self, event: WatchEvent) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                if event.listed:
                    self._listed.add(event.object["metadata"]["uid"])
                self._observe(event.object)
            case "DELETED":
                self._vanish(event.object["metadata"]["uid"])
            case "SYNCED":
                for uid in self._workers.keys() - self._listed:
                    self._vanish(uid)
                self._listed = set()
                self._remove_leftovers()

    def _observe(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._workers:
            self._workers[uid].observe(pod)
            return
        wish = (pod["metadata"].get("annotations") or {}).get(POD_ADDRESS_ANNOTATION)
        directory = PodDirectory(self._root / directory_name(uid))
        worker = PodWorker(pod, self._network.take(uid, wish), directory, self._node)
        self._workers[uid] = worker
        task = asyncio.create_task(worker.run(), name=f"pod {pod['metadata']['name']}")
        self._tasks[uid] = task
        task.add_done_callback(lambda _: self._forget(uid))

    def _vanish(self, uid: str) -> None:
        if uid in self._workers:
            self._workers[uid].vanish()

    def _forget(self, uid: str) -> None:
        # On the agent's way out the workers are cancelled, but their processes still have to be ended.
        if not self._tasks[uid].cancelled():
            del self._workers[uid], self._tasks[uid]
            self._network.give_back(uid)

    def _remove_leftovers(self) -> None:
        """Deletes directories of pods that were deleted while no agent ran."""
        known = {directory_name(uid) for uid in self._workers}
        for path in self._root.iterdir():
            if is_directory_name(path.name) and path.name not in known:
                shutil.rmtree(path, ignore_errors=True)
