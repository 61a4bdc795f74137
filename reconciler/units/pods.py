"""What a unit's pods say: where they run, whether they cannot start, and in whose words."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.conditions import is_true
from gpu_platform.domain.metadata import labels_of

Json = dict[str, Any]

HARMLESS_WAITS = ("", "ContainerCreating", "PodInitializing")
MESSAGE_LIMIT = 1_000


def find_node(pods: Sequence[Json]) -> str | None:
    """The node of the first pod that has one."""
    return next((pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")), None)


def find_ready(pods: Sequence[Json], template: str) -> Json | None:
    """A pod of this template that is Ready. Nothing waits behind readiness (`minReadySeconds` is 0), so this is what
    the Deployment's status says two controllers later."""
    for pod in _current(pods):
        if is_true(pod, "Ready") and labels_of(pod).get(names.LABEL_TEMPLATE) == template:
            return pod
    return None


def find_failure(pods: Sequence[Json]) -> str | None:
    """Why a pod does not start, in the failing container's own words."""
    for pod in _current(pods):
        status = pod.get("status", {})
        for container in _container_statuses(status):
            if message := _container_failure(container):
                return f"Pod {pod['metadata']['name']} container {container['name']}: {message}"[:MESSAGE_LIMIT]
        if status.get("phase") == "Failed":
            why = status.get("message") or status.get("reason") or "failed"
            return f"Pod {pod['metadata']['name']}: {why}"[:MESSAGE_LIMIT]
    return None


def find_container_failure(pods: Sequence[Json], names_: Sequence[str]) -> str | None:
    """Why one of these containers does not run, in its own words."""
    for pod in _current(pods):
        for container in _container_statuses(pod.get("status", {})):
            if container["name"] in names_ and (message := _container_failure(container)):
                return f"Pod {pod['metadata']['name']} container {container['name']}: {message}"[:MESSAGE_LIMIT]
    return None


def find_unschedulable(pods: Sequence[Json]) -> str | None:
    """Why the scheduler found no place."""
    for pod in _current(pods):
        for condition in pod.get("status", {}).get("conditions", []):
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                return str(condition.get("message") or "no node fits")[:MESSAGE_LIMIT]
    return None


def _current(pods: Sequence[Json]) -> Iterator[Json]:
    """A pod on its way out says nothing about the one that comes."""
    return (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])


def _container_statuses(status: Json) -> Iterable[Json]:
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def _container_failure(container: Json) -> str | None:
    """
    | state                              | last state | answer                                       |
    | ---------------------------------- | ---------- | -------------------------------------------- |
    | waiting, harmless reason           | any        | none                                         |
    | waiting, CrashLoopBackOff          | terminated | how it ended, else the wait's message        |
    | waiting, any other reason          | any        | reason: message                              |
    | terminated with code 0             | any        | none                                         |
    | terminated with another code       | any        | how it ended                                 |
    | running                            | any        | none                                         |
    """
    state = container.get("state", {})
    if waiting := state.get("waiting"):
        reason = waiting.get("reason", "")
        if reason in HARMLESS_WAITS:
            return None
        ended = container.get("lastState", {}).get("terminated")
        if reason == "CrashLoopBackOff" and ended:
            return f"CrashLoopBackOff: {_ending(ended)}"
        return f"{reason}: {waiting['message']}" if waiting.get("message") else str(reason)
    if (terminated := state.get("terminated")) and terminated.get("exitCode") != 0:
        return _ending(terminated)
    return None


def _ending(terminated: Json) -> str:
    how = f"{terminated.get('reason') or 'Error'} (exit code {terminated.get('exitCode')})"
    message = (terminated.get("message") or "").strip()
    return f"{message} – {how}" if message else how
