"""From one state of a container to the next. Pure: time and results are arguments."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpu_platform.devcluster.hostnode.launch.errors import CannotStartError
from gpu_platform.devcluster.hostnode.pods.states import (
    Container,
    Containers,
    Running,
    Stopping,
    Terminated,
    Waiting,
    init_specs,
    is_sidecar,
    main_specs,
)
from gpu_platform.devcluster.hostnode.processes.probes import ProbeKind
from gpu_platform.devcluster.hostnode.times import parse_time
from gpu_platform.kube.client import Json

FIRST_DELAY = timedelta(seconds=1)
LONGEST_DELAY = timedelta(seconds=60)
"""Kubelet waits from 10 s to 5 min; a developer watches, and the machine has few pods."""

GOOD_RUN = timedelta(minutes=10)
"""A run this long forgives the crashes before it, as in kubelet."""

REFUSAL_DELAY = timedelta(seconds=1)
"""Before a container that could not be started is tried again, which costs a read or two."""

KILLED = 137


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
        run = Running(parse_time(running["startedAt"]), process, started=False, ready=False)
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
        started_at=parse_time(known.get("startedAt") or finished_at),
        finished_at=parse_time(finished_at),
        process=_parse_process(known.get("containerID")),
    )


def _parse_process(container_id: str | None) -> int:
    text = (container_id or "").rpartition("/")[2]
    return int(text) if text.isdigit() else 0
