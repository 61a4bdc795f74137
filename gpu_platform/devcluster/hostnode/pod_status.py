"""The pod's status as the API shows it, and the patch that gets it there. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpu_platform.devcluster.hostnode.addresses import shown_address
from gpu_platform.devcluster.hostnode.launch.fields import HOST_ADDRESS
from gpu_platform.devcluster.hostnode.names import POD_ADDRESS_ANNOTATION
from gpu_platform.devcluster.hostnode.plan import Outcome
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
from gpu_platform.devcluster.hostnode.times import format_time
from gpu_platform.kube.client import Json


def build_status(pod: Json, containers: Containers, address: str, outcome: Outcome | None, now: datetime) -> Json:
    known = pod.get("status") or {}
    shown = shown_address(address)
    status: Json = {
        "phase": outcome or _phase(pod, containers),
        "startTime": known.get("startTime") or format_time(now),
        "hostIP": HOST_ADDRESS,
        "hostIPs": [{"ip": HOST_ADDRESS}],
        "podIP": shown,
        "podIPs": [{"ip": shown}],
        "conditions": _build_conditions(pod, containers, outcome, now),
        "containerStatuses": [_container_status(spec, containers[spec["name"]]) for spec in main_specs(pod)],
    }
    if inits := init_specs(pod):
        status["initContainerStatuses"] = [_init_status(spec, containers[spec["name"]]) for spec in inits]
    if generation := pod["metadata"].get("generation"):
        status["observedGeneration"] = generation
    return status


def plan_patch(pod: Json, status: Json, address: str) -> Json | None:
    """A strategic merge patch for `pods/status`; `None` when the pod says all of it already."""
    annotations = pod["metadata"].get("annotations") or {}
    if _says(pod.get("status") or {}, status) and annotations.get(POD_ADDRESS_ANNOTATION) == address:
        return None
    return {
        # The uid keeps us from writing to a new pod of the same name.
        "metadata": {"uid": pod["metadata"]["uid"], "annotations": {POD_ADDRESS_ANNOTATION: address}},
        # This list would be merged by address, and an old one would stay.
        "status": status | {"podIPs": [*status["podIPs"], {"$patch": "replace"}]},
    }


def _says(known: Json, wanted: Json) -> bool:
    conditions = {condition["type"]: condition for condition in known.get("conditions") or []}
    return all(_covers(conditions.get(condition["type"], {}), condition) for condition in wanted["conditions"]) and all(
        _covers(known.get(key), value) for key, value in wanted.items() if key != "conditions"
    )


def _covers(known: Any, wanted: Any) -> bool:
    """Whether `known` holds all of `wanted`; the API server adds fields of its own and drops empty ones."""
    if isinstance(wanted, dict):
        holder = known if isinstance(known, dict) else {}
        return all(_covers(holder.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(known, list)
            and len(known) == len(wanted)
            and all(_covers(a, b) for a, b in zip(known, wanted, strict=True))
        )
    return bool(known == wanted) or (not known and not wanted)


def _phase(pod: Json, containers: Containers) -> str:
    mains = [containers[spec["name"]] for spec in main_specs(pod)]
    return "Running" if all(main.was_started for main in mains) else "Pending"


def _container_status(spec: Json, container: Container) -> Json:
    run = container.state
    # A state names exactly one of the three; the others are said to be absent by not being there, because
    # the list is replaced as a whole.
    status: Json = {
        "name": container.name,
        "image": spec.get("image") or "",
        "imageID": "",
        "restartCount": container.attempt,
        "ready": isinstance(run, Running) and run.ready,
        "started": isinstance(run, Running) and run.started,
        "state": _state(run),
    }
    if container.last:
        status["lastState"] = _state(container.last)
    newest = container.last if isinstance(run, Waiting) else run
    if newest:
        status["containerID"] = _container_id(newest)
    return status


def _init_status(spec: Json, container: Container) -> Json:
    """A plain init container is ready when it is done."""
    status = _container_status(spec, container)
    return status if is_sidecar(spec) else status | {"ready": container.has_succeeded}


def _state(state: Waiting | Running | Terminated) -> Json:
    match state:
        case Waiting(reason=reason, message=message):
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        case Running(started_at=started_at):
            return {"running": {"startedAt": format_time(started_at)}}
        case Terminated():
            return {
                "terminated": {
                    "exitCode": state.exit_code,
                    "reason": state.reason,
                    "startedAt": format_time(state.started_at),
                    "finishedAt": format_time(state.finished_at),
                    "containerID": _container_id(state),
                }
                | ({"message": state.message} if state.message else {})
            }


def _container_id(attempt: Running | Terminated) -> str:
    """The process, because that is what a developer can look at here."""
    return f"process://{attempt.process}"


def _build_conditions(pod: Json, containers: Containers, outcome: Outcome | None, now: datetime) -> list[Json]:
    known = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or []}
    is_initialized = any(containers[spec["name"]].was_started for spec in main_specs(pod))
    uninitialized = [
        spec["name"]
        for spec in init_specs(pod)
        if not is_initialized and not has_passed(spec, containers[spec["name"]])
    ]
    unready = [
        spec["name"]
        for spec in [*filter(is_sidecar, init_specs(pod)), *main_specs(pod)]
        if not _is_ready(containers[spec["name"]])
    ]
    closed_gates = [
        gate["conditionType"]
        for gate in pod["spec"].get("readinessGates") or []
        if known.get(gate["conditionType"], {}).get("status") != "True"
    ]
    not_initialized = _because("ContainersNotInitialized", "containers not initialized", uninitialized)
    not_ready = _because("ContainersNotReady", "containers not ready", unready)
    if outcome:
        not_ready = ("PodCompleted" if outcome == "Succeeded" else "PodFailed", None)
    gated = _because("ReadinessGatesNotReady", "readiness gates not ready", closed_gates)
    wanted = {
        "PodReadyToStartContainers": None,
        "Initialized": not_initialized,
        "ContainersReady": not_ready,
        "Ready": not_ready or gated,
        "PodScheduled": None,
    }
    return [_condition(pod, known.get(kind, {}), kind, why, now) for kind, why in wanted.items()]


def _is_ready(container: Container) -> bool:
    return isinstance(container.state, Running) and container.state.ready


Why = tuple[str, str | None]
"""Reason and message of a condition that is false."""


def _because(reason: str, what: str, names: Iterable[str]) -> Why | None:
    listed = ", ".join(names)
    return (reason, f"{what}: {listed}") if listed else None


def _condition(pod: Json, before: Json, kind: str, why: Why | None, now: datetime) -> Json:
    status = "False" if why else "True"
    is_same = before.get("status") == status and before.get("lastTransitionTime")
    reason, message = why or (None, None)
    condition: Json = {
        "type": kind,
        "status": status,
        # Conditions are merged field by field, so what no longer holds is named and emptied.
        "reason": reason,
        "message": message,
        "lastTransitionTime": before["lastTransitionTime"] if is_same else format_time(now),
    }
    if generation := pod["metadata"].get("generation"):
        condition["observedGeneration"] = generation
    return condition
