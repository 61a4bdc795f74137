"""What a unit's pods say: where they run, what they wait for, whether they cannot start, and in whose words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.conditions import is_true
from gpu_platform.domain.metadata import labels_of

Json = dict[str, Any]

HARMLESS_WAITS = ("", "ContainerCreating", "PodInitializing")
FINISHED = ("Succeeded", "Failed")
"""Phases of a pod that runs nothing any more."""

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


def find_node_problem(node: Json) -> str | None:
    """Why a node is not Ready, in its own words; None when it is."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((each for each in conditions if each["type"] == "Ready"), None)
    if ready is None:
        return "it has not reported yet"
    if ready["status"] == "True":
        return None
    return ": ".join(filter(None, (ready.get("reason"), ready.get("message")))) or f"Ready is {ready['status']}"


def find_away(pods: Sequence[Json], away: Mapping[str, str]) -> str | None:
    """Which pod is on a node that is not Ready. One that has ended needs no node."""
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in away and pod.get("status", {}).get("phase") not in FINISHED:
            return f"its pod is on node {node}, which is not Ready ({away[node]})"[:MESSAGE_LIMIT]
    return None


def describe_wait(pods: Sequence[Json], away: Mapping[str, str], deployment: Json | None) -> str:
    """What pods that are neither Ready nor failed wait for, as far as they and their Deployment say. Rows from top to
    bottom; `away` has the nodes that are not Ready, and why.

    | pods                                  | Deployment           | answer                             |
    | ------------------------------------- | -------------------- | ---------------------------------- |
    | one on a node that is not Ready       | any                  | the node, and its own words        |
    | one that runs, and is not Ready       | any                  | which containers are not ready     |
    | one that is not being deleted         | any                  | it is starting                     |
    | one that is being deleted             | any                  | it is being deleted                |
    | none                                  | cannot create a pod  | in the words of the API server     |
    | none                                  | any other, or none   | it is not created yet              |
    """
    current = list(_current(pods))
    if message := find_away(current or pods, away):
        return message
    for pod in current:
        if pod.get("status", {}).get("phase") == "Running":
            why = _condition_message(pod, "Ready", "False")
            return "its pod runs and is not ready" + (f": {why}" if why else "")
    if current:
        return "its pod is starting"
    if pods:
        return "its earlier pod is being deleted"
    if deployment is not None and (why := _condition_message(deployment, "ReplicaFailure", "True")):
        return f"its pod cannot be created: {why}"[:MESSAGE_LIMIT]
    return "its pod is not created yet"


def _condition_message(item: Json, kind: str, status: str) -> str | None:
    conditions = (item.get("status") or {}).get("conditions") or ()
    found = (each for each in conditions if each["type"] == kind and each["status"] == status)
    return next((each.get("message") for each in found), None)


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
