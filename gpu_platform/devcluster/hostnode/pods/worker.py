"""One pod's task: takes what happened, plans, acts, publishes. Everything about the pod happens in here, in turn.

`PodSet` starts it and tells it what the API says; processes and probes report to it. A failure in here is
logged and tried again, and never reaches another pod.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import aiohttp

from gpu_platform.devcluster.hostnode.events import EventRecorder
from gpu_platform.devcluster.hostnode.launch.directory import PodDirectory
from gpu_platform.devcluster.hostnode.launch.errors import CannotStartError
from gpu_platform.devcluster.hostnode.launch.fields import NodeFacts
from gpu_platform.devcluster.hostnode.launch.preparation import Preparation
from gpu_platform.devcluster.hostnode.plan import (
    Action,
    Kill,
    Outcome,
    Start,
    Stop,
    StopRequest,
    find_end,
    plan_pod,
    plan_stop_request,
)
from gpu_platform.devcluster.hostnode.pod_status import build_status, plan_patch
from gpu_platform.devcluster.hostnode.pods.run import ContainerRun, Ended, Probed, Report
from gpu_platform.devcluster.hostnode.pods.states import Running, Waiting, init_specs, main_specs
from gpu_platform.devcluster.hostnode.pods.transitions import (
    Ending,
    after_exit,
    after_kill,
    after_probe,
    after_refusal,
    after_start,
    after_stop,
    restarts_after,
    restore_containers,
)
from gpu_platform.devcluster.hostnode.times import utc_now
from gpu_platform.kube import ConflictError, KubeClient, KubeError, NotFoundError, PatchType
from gpu_platform.kube.client import Json
from gpu_platform.kube.paths import PODS

REFRESH = timedelta(seconds=60)
"""Between two looks at what is behind a running pod's volumes, as in kubelet."""

RETRY = (timedelta(seconds=0.2), timedelta(seconds=5))
"""After a failed pass, from and to: soon, because an API server that restarts is back soon."""

STATUS_TIMEOUT = 5.0
"""Seconds. A pod's processes are looked after in the same task, so a silent API server must not hold it."""

START_ERROR = 128
"""The exit code that container runtimes give to a command that could not be started."""

log = logging.getLogger(__name__)


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
        self.containers = restore_containers(pod, utc_now(), is_intact=directory.path.exists())
        self.runs: dict[str, ContainerRun] = {}
        self._address = address
        self._node = node
        facts = NodeFacts(address, node.allocatable)
        self._preparation = Preparation(node.client, pod, facts=facts, directory=directory, inherited=node.inherited)
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
        """The API no longer has the pod."""
        self._is_gone = True
        self._wake.set()

    async def run(self) -> None:
        """Until the pod is gone and nothing of it is left."""
        delay = RETRY[0]
        while not self._is_finished:
            self._wake.clear()
            try:
                wake_at = await self._pass(utc_now())
                delay = RETRY[0]
            except Exception as error:
                log.warning("pod %s: %s", self._name, error, exc_info=not isinstance(error, KubeError))
                wake_at = utc_now() + delay
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
        seconds = None if until is None else max((until - utc_now()).total_seconds(), 0)
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
            launch = await self._preparation.prepare(self.pod, spec, now)
        except CannotStartError as error:
            self._node.recorder.record(self.pod, "Warning", "Failed", error.message, name)
            self.containers[name] = after_refusal(container, error, now)
            return
        attempt = after_start(container, spec, 0, now).attempt
        self.directory.forget_logs(name, before=attempt - 1)
        try:
            run = ContainerRun(
                spec,
                launch,
                address=self._address,
                log_path=self.directory.log(name, attempt),
                message_path=self.directory.termination_message(name),
                session=self._node.session,
                report=self._report,
            )
        except (OSError, ValueError) as error:
            failed = after_start(container, spec, 0, now)
            ending = Ending(START_ERROR, f"cannot start {launch.command.argv[0]!r}: {error}", "StartError")
            restarts = restarts_after(self.pod, spec, START_ERROR)
            self.containers[name] = after_exit(failed, ending, restarts=restarts, now=now)
            self._node.recorder.record(self.pod, "Warning", "Failed", ending.message, name)
            return
        self.runs[name] = run
        self.containers[name] = after_start(container, spec, run.pid, utc_now())
        self._node.recorder.record(self.pod, "Normal", "Started", f"started process {run.pid}", name)

    async def _refresh_volumes(self, now: datetime) -> datetime | None:
        """While something runs."""
        is_due = self._refresh_at is not None and now >= self._refresh_at
        if not self.runs:
            self._refresh_at = None
        elif self._refresh_at is None or is_due:
            self._refresh_at = now + REFRESH
        if self.runs and is_due:
            with suppress(CannotStartError):
                await self._preparation.refresh_volumes(self.pod, now)
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
        """The processes have ended: let the API server forget the pod."""
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
