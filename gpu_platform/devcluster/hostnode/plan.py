"""Decisions about a pod's containers, all pure: their states, what each event makes of them, and what is to be done
next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, cast

from gpu_platform.devcluster.hostnode.processes import ProbeKind
from gpu_platform.devcluster.hostnode.sources import CannotStartError
from gpu_platform.domain.json_text import Json

FIRST_DELAY = timedelta(seconds=1)

LONGEST_DELAY = timedelta(seconds=60)
"""Kubelet waits from 10 s to 5 min; a developer watches, and the machine has few pods."""

GOOD_RUN = timedelta(minutes=10)
"""A run this long forgives the crashes before it, as in kubelet."""

REFUSAL_DELAY = timedelta(seconds=1)
"""Before a container that could not be started is tried again, which costs a read or two."""

KILLED = 137

DEFAULT_GRACE_SECONDS = 30
"""As the API server defaults it."""

SIDECAR_GRACE = timedelta(seconds=2)
"""What a sidecar gets at least when the main containers used up the pod's grace, as in kubelet."""

Outcome = Literal["Succeeded", "Failed"]


@dataclass(frozen=True)
class Waiting:
    reason: str
    message: str = ""
    due_at: datetime | None = None
    """When to try again; `None` for one that was never tried and may start as soon as its turn comes."""


@dataclass(frozen=True)
class Stopping:
    since: datetime
    grace: timedelta
    killed: bool = False


@dataclass(frozen=True)
class Running:
    started_at: datetime
    process: int
    started: bool
    """The startup probe has passed, or there is none."""
    ready: bool
    failure: str | None = None
    """Why a probe wants it ended."""
    stopping: Stopping | None = None


@dataclass(frozen=True)
class Terminated:
    """The end of one attempt. As a container's state it is final; one that comes back is `Waiting`."""

    exit_code: int
    reason: str
    message: str
    started_at: datetime
    finished_at: datetime
    process: int


@dataclass(frozen=True)
class Container:
    name: str
    state: Waiting | Running | Terminated
    last: Terminated | None = None
    """The attempt before the one that the state is about."""
    attempt: int = 0
    """Number of the newest attempt, and so the restart count."""
    crashes: int = 0
    """Ends in a row without a long run between them."""

    @property
    def was_started(self) -> bool:
        return self.last is not None or not isinstance(self.state, Waiting)

    @property
    def has_succeeded(self) -> bool:
        return isinstance(self.state, Terminated) and self.state.exit_code == 0


Containers = dict[str, Container]


def init_specs(pod: Json) -> list[Json]:
    return pod["spec"].get("initContainers") or []


def main_specs(pod: Json) -> list[Json]:
    specs: list[Json] = pod["spec"]["containers"]
    return specs


def is_sidecar(spec: Json) -> bool:
    """Of an init container: it keeps running beside the main ones."""
    return spec.get("restartPolicy") == "Always"


def has_passed(spec: Json, container: Container) -> bool:
    """Of an init container: the next one may start."""
    if is_sidecar(spec):
        return isinstance(container.state, Running) and container.state.started
    return container.has_succeeded


@dataclass(frozen=True)
class Ending:
    exit_code: int
    message: str = ""
    reason: str | None = None


def new_containers(pod: Json) -> Containers:
    inits = {spec["name"]: Container(spec["name"], Waiting("PodInitializing")) for spec in init_specs(pod)}
    reason = "PodInitializing" if inits else "ContainerCreating"
    mains = {spec["name"]: Container(spec["name"], Waiting(reason)) for spec in main_specs(pod)}
    return inits | mains


def restore_containers(pod: Json, now: datetime, *, is_intact: bool) -> Containers:
    """What an earlier agent published. Its processes died with it, so what ran then has ended.

    A pod that is not intact has lost its directory: what its init containers prepared is gone, so all of it begins
    again and only the counts go on. (The API server allows that to restartPolicy Always alone.)
    """
    begins_again = not is_intact and (pod["spec"].get("restartPolicy") or "Always") == "Always"
    status = pod.get("status") or {}
    containers = new_containers(pod)
    for known in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        fresh = containers[known["name"]]
        restored = _restore(pod, known, now)
        if not begins_again:
            containers[fresh.name] = restored
        elif restored.was_started:
            containers[fresh.name] = replace(fresh, attempt=restored.attempt + 1)
    return containers


def after_start(container: Container, spec: Json, process: int, now: datetime) -> Container:
    started = "startupProbe" not in spec
    running = Running(now, process, started=started, ready=started and "readinessProbe" not in spec)
    attempt = container.attempt + 1 if container.was_started else container.attempt
    return replace(container, state=running, attempt=attempt)


def after_refusal(container: Container, error: CannotStartError, now: datetime) -> Container:
    return replace(container, state=Waiting(error.reason, error.message, now + REFUSAL_DELAY))


def after_exit(container: Container, ending: Ending, *, restarts: bool, now: datetime) -> Container:
    """The attempt is over: for good, or until the back-off has passed."""
    run = container.state
    started_at = run.started_at if isinstance(run, Running) else now
    terminated = Terminated(
        exit_code=ending.exit_code,
        reason=ending.reason or ("Completed" if ending.exit_code == 0 else "Error"),
        message=ending.message,
        started_at=started_at,
        finished_at=now,
        process=run.process if isinstance(run, Running) else 0,
    )
    if not restarts:
        return replace(container, state=terminated)
    crashes = 1 if now - started_at >= GOOD_RUN else container.crashes + 1
    delay = restart_delay(crashes)
    waiting = Waiting(
        "CrashLoopBackOff",
        f"back-off {delay.total_seconds():.0f}s restarting container {container.name!r} after exit code "
        f"{ending.exit_code}",
        now + delay,
    )
    return replace(container, state=waiting, last=terminated, crashes=crashes)


def restart_delay(crashes: int) -> timedelta:
    """None after the first end, then doubling."""
    if crashes <= 1:
        return timedelta()
    doublings: int = 2 ** min(crashes - 2, 10)
    return min(FIRST_DELAY * doublings, LONGEST_DELAY)


def restarts_after(pod: Json, spec: Json, exit_code: int) -> bool:
    """Whether the restart policy brings the container back."""
    policy = spec.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always"
    is_plain_init = spec in init_specs(pod) and not is_sidecar(spec)
    if policy == "Always" and not is_plain_init:
        return True
    return policy != "Never" and exit_code != 0


def after_probe(container: Container, kind: ProbeKind, verdict: bool | None, message: str, spec: Json) -> Container:
    run = container.state
    if not isinstance(run, Running) or verdict is None:
        return container
    match kind, verdict:
        case ProbeKind.STARTUP, True:
            run = replace(run, started=True, ready="readinessProbe" not in spec)
        case ProbeKind.READINESS, _:
            run = replace(run, ready=verdict)
        case _, False:
            run = replace(run, ready=False, failure=f"{kind} probe failed: {message}")
    return replace(container, state=run)


def after_stop(container: Container, grace: timedelta, now: datetime) -> Container:
    if not isinstance(container.state, Running):
        return container
    return replace(container, state=replace(container.state, stopping=Stopping(now, grace)))


def after_kill(container: Container) -> Container:
    run = container.state
    if not isinstance(run, Running) or run.stopping is None:
        return container
    return replace(container, state=replace(run, stopping=replace(run.stopping, killed=True)))


def _restore(pod: Json, known: Json, now: datetime) -> Container:
    spec = next(spec for spec in [*init_specs(pod), *main_specs(pod)] if spec["name"] == known["name"])
    state, last = known.get("state") or {}, (known.get("lastState") or {}).get("terminated")
    container = Container(
        name=known["name"],
        state=Waiting("ContainerCreating"),
        last=_parse_terminated(last) if last else None,
        attempt=int(known.get("restartCount") or 0),
    )
    if running := state.get("running"):
        process = _parse_process(known.get("containerID"))
        run = Running(datetime.fromisoformat(running["startedAt"]), process, started=False, ready=False)
        ending = Ending(KILLED, "the host node's agent was restarted, and its processes ended with it")
        restarts = restarts_after(pod, spec, KILLED)
        return after_exit(replace(container, state=run), ending, restarts=restarts, now=now)
    if terminated := state.get("terminated"):
        return replace(container, state=_parse_terminated(terminated))
    return container


def _parse_terminated(known: Json) -> Terminated:
    finished_at = known.get("finishedAt") or "1970-01-01T00:00:00Z"
    return Terminated(
        exit_code=int(known["exitCode"]),
        reason=known.get("reason") or "",
        message=known.get("message") or "",
        started_at=datetime.fromisoformat(known.get("startedAt") or finished_at),
        finished_at=datetime.fromisoformat(finished_at),
        process=_parse_process(known.get("containerID")),
    )


def _parse_process(container_id: str | None) -> int:
    text = (container_id or "").rpartition("/")[2]
    return int(text) if text.isdigit() else 0


@dataclass(frozen=True)
class Start:
    container: str


@dataclass(frozen=True)
class Stop:
    container: str
    grace: timedelta
    why: str


@dataclass(frozen=True)
class Kill:
    container: str


Action = Start | Stop | Kill


@dataclass(frozen=True)
class StopRequest:
    """The whole pod must end."""

    deadline: datetime
    grace: timedelta


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...] = ()
    wake_at: datetime | None = None
    outcome: Outcome | None = None
    """Set when no process is left and none will come back."""


def plan_stop_request(pod: Json, before: StopRequest | None, now: datetime, *, is_gone: bool) -> StopRequest | None:
    """A later request can only shorten the time. A pod that is gone from the API has none left."""
    if is_gone:
        return StopRequest(now, timedelta())
    if "deletionTimestamp" not in pod["metadata"]:
        return before
    seconds = pod["metadata"].get("deletionGracePeriodSeconds")
    grace = pod_grace(pod) if seconds is None else timedelta(seconds=seconds)
    asked = StopRequest(now + grace, grace)
    return asked if before is None or asked.deadline < before.deadline else before


def pod_grace(pod: Json) -> timedelta:
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return timedelta(seconds=DEFAULT_GRACE_SECONDS if seconds is None else seconds)


def plan_pod(pod: Json, containers: Containers, request: StopRequest | None, now: datetime) -> Plan:
    """Decide from the first row that fits.

    | asked to stop | running                   | ended for good              | → actions                     |
    |---------------|---------------------------|-----------------------------|-------------------------------|
    | yes           | init or main containers   | any                         | stop these, kill when late    |
    | yes           | sidecars only             | any                         | stop the last one of them     |
    | yes           | none                      | any                         | none; outcome                 |
    | no            | any                       | the pod, says its phase     | stop as above; outcome        |
    | no            | any                       | an init container, failed   | stop as above; outcome        |
    | no            | any                       | every main container        | stop as above; outcome        |
    | no            | any                       | init containers, some       | start the next init container |
    | no            | any                       | init containers, all passed | start the main containers     |

    A container whose probe failed is stopped; one that waits is started when its back-off has passed.
    """
    if request is None and find_end(pod, containers) is None:
        return _gather(_plan_run(pod, containers, now))
    plan = _gather(_plan_end(pod, containers, request, now))
    if any(isinstance(container.state, Running) for container in containers.values()):
        return plan
    return Plan(outcome=find_end(pod, containers) or "Failed")


def find_end(pod: Json, containers: Containers) -> Outcome | None:
    """How the pod ends, as soon as that is certain: sidecars may still be running."""
    match (pod.get("status") or {}).get("phase"):
        case "Succeeded" | "Failed" as outcome:
            # Ours from before a restart, or another writer ended the pod: it never runs again.
            return cast(Outcome, outcome)
    inits = [containers[spec["name"]] for spec in init_specs(pod) if not is_sidecar(spec)]
    mains = [containers[spec["name"]] for spec in main_specs(pod)]
    if any(isinstance(init.state, Terminated) and not init.has_succeeded for init in inits):
        return "Failed"
    if not all(isinstance(main.state, Terminated) for main in mains):
        return None
    return "Succeeded" if all(main.has_succeeded for main in mains) else "Failed"


Step = Action | datetime
"""Something to do now, or the time to look again."""


def _gather(steps: Iterator[Step]) -> Plan:
    found = tuple(steps)
    times = [step for step in found if isinstance(step, datetime)]
    return Plan(
        actions=tuple(step for step in found if not isinstance(step, datetime)),
        wake_at=min(times, default=None),
    )


def _plan_run(pod: Json, containers: Containers, now: datetime) -> Iterator[Step]:
    mains = [containers[spec["name"]] for spec in main_specs(pod)]
    inits = [(spec, containers[spec["name"]]) for spec in init_specs(pod)]
    is_initialized = any(main.was_started for main in mains)
    for index, (spec, init) in enumerate(inits):
        yield from _keep_running(pod, init, now)
        was_passed = is_initialized or any(later.was_started for _, later in inits[index + 1 :])
        if not was_passed and not has_passed(spec, init):
            return
    for main in mains:
        yield from _keep_running(pod, main, now)


def _keep_running(pod: Json, container: Container, now: datetime) -> Iterator[Step]:
    match container.state:
        case Waiting(due_at=due_at):
            yield Start(container.name) if due_at is None or due_at <= now else due_at
        case Running(failure=str(why), stopping=None):
            yield Stop(container.name, pod_grace(pod), why)
        case Running(stopping=stopping) if stopping is not None and not stopping.killed:
            yield from _kill_at(container, stopping.since + stopping.grace, now)


def _plan_end(pod: Json, containers: Containers, request: StopRequest | None, now: datetime) -> Iterator[Step]:
    sidecars = [containers[spec["name"]] for spec in init_specs(pod) if is_sidecar(spec)]
    others = [container for container in containers.values() if container not in sidecars]
    if running := _running(others):
        for container in running:
            yield from _end(container, pod, request, now)
    else:
        for sidecar in _running(sidecars)[-1:]:
            yield from _end(sidecar, pod, request, now, floor=SIDECAR_GRACE)


def _running(containers: Sequence[Container]) -> list[Container]:
    return [container for container in containers if isinstance(container.state, Running)]


def _end(
    container: Container,
    pod: Json,
    request: StopRequest | None,
    now: datetime,
    floor: timedelta = timedelta(),
) -> Iterator[Step]:
    grace = request.grace if request else pod_grace(pod)
    match container.state:
        case Running(stopping=None):
            yield Stop(container.name, grace, "the pod ends")
        case Running(stopping=stopping) if stopping is not None and not stopping.killed:
            deadline = stopping.since + stopping.grace
            if request is not None:
                deadline = min(deadline, max(request.deadline, stopping.since + min(floor, request.grace)))
            yield from _kill_at(container, deadline, now)


def _kill_at(container: Container, deadline: datetime, now: datetime) -> Iterator[Step]:
    yield Kill(container.name) if deadline <= now else deadline
