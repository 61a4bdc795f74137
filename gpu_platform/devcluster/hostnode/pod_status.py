"""What the API server is told of a pod: its status, and events, which a developer sees in `kubectl describe` (best
effort; losing one harms nothing)."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal

from gpu_platform.clock import format_time, now_utc
from gpu_platform.devcluster.hostnode.node import HOST_ADDRESS, NODE_NAME, POD_ADDRESS_ANNOTATION, shown_address
from gpu_platform.devcluster.hostnode.plan import (
    Container,
    Containers,
    Outcome,
    Running,
    Terminated,
    Waiting,
    has_passed,
    init_specs,
    is_sidecar,
    main_specs,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.paths import EVENTS

Why = tuple[str, str | None]
"""Reason and message of a condition that is false."""

QUEUE = 1_000
"""Events that wait to be written; beyond it they are dropped, because pods matter more."""

SAME_AGAIN = timedelta(minutes=1)
"""An event that says the same is left out for this long: a probe that fails every second is one story."""

MESSAGE_CHARACTERS = 1_024
"""The API's limit."""

log = logging.getLogger(__name__)


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


class EventRecorder:
    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._queue: asyncio.Queue[Json] = asyncio.Queue(QUEUE)
        self._said: dict[tuple[str, str, str], datetime] = {}

    def record(
        self, pod: Json, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = ""
    ) -> None:
        now = now_utc()
        key = (pod["metadata"]["uid"], reason, f"{container}: {message}")
        self._said = {said: at for said, at in self._said.items() if now - at < SAME_AGAIN}
        if key in self._said or self._queue.full():
            return
        self._said[key] = now
        self._queue.put_nowait(build_event(pod, kind, reason, message, container, now))

    async def run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._client.create(EVENTS.collection(event["metadata"]["namespace"]), event)
            except Exception as error:
                log.warning("an event was lost: %s", error, exc_info=not isinstance(error, KubeError))


def build_event(pod: Json, kind: str, reason: str, message: str, container: str, now: datetime) -> Json:
    metadata = pod["metadata"]
    place = {"fieldPath": f"spec.containers{{{container}}}"} if container else {}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            **place,
        },
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_CHARACTERS],
        "source": {"component": "host-node", "host": NODE_NAME},
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
    }
