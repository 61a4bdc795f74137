"""What is due for a pod now: starts, stops and kills, and when to look again. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast

from gpu_platform.devcluster.hostnode.pods.states import (
    Container,
    Containers,
    Running,
    Terminated,
    Waiting,
    has_passed,
    init_specs,
    is_sidecar,
    main_specs,
)
from gpu_platform.kube.client import Json

DEFAULT_GRACE_SECONDS = 30
"""As the API server defaults it."""

SIDECAR_GRACE = timedelta(seconds=2)
"""What a sidecar gets at least when the main containers used up the pod's grace, as in kubelet."""


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
Outcome = Literal["Succeeded", "Failed"]


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
            # Ours from before a restart, or somebody else ended the pod: it never runs again.
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
