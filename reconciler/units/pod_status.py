"""What a unit's pods say: where they run, what they wait for, whether they cannot start, and in whose words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from gpu_platform.domain import names
from gpu_platform.domain.conditions import condition_of, is_true
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import labels_of

HARMLESS_WAITS = ("", "ContainerCreating", "PodInitializing")
FINISHED = ("Succeeded", "Failed")
"""Phases, see `is_finished`."""

MESSAGE_LIMIT = 1_000

SHORTEST_RUN = timedelta(seconds=10)
"""How long a restarted container without probes runs at least before it counts as ready: kubelet's first back-off."""

LONGEST_TRIAL = timedelta(minutes=1)
"""A restarted container that runs this long serves its callers, however long it ran before. Chosen by feel."""

GOOD_RUN = timedelta(minutes=10)
"""A run this long forgives the end that came after it, as in kubelet: it is no crash loop."""


def find_node(pods: Sequence[Json]) -> str | None:
    """The node of the first pod that has one."""
    return next((pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")), None)


def find_ready(pods: Sequence[Json], template: str, now: datetime) -> Json | None:
    """A pod of this template that is Ready, and not in a crash loop. Nothing else waits behind readiness
    (`minReadySeconds` is 0), so this is what the Deployment's status says two controllers later."""
    for pod in _current(pods):
        is_ready = is_true(pod, "Ready") and labels_of(pod).get(names.LABEL_TEMPLATE) == template
        if is_ready and find_trial(pod, now) is None:
            return pod
    return None


def find_trial(pod: Json, now: datetime) -> timedelta | None:
    """How long a Ready pod still has to run before that counts; None when it counts. Without a probe Kubernetes calls
    every running container ready, so that a crash loop would be Ready for a moment after each restart.

    | probes of the pod    | last run of the container | counts when this run has lasted             |
    | -------------------- | ------------------------- | ------------------------------------------- |
    | readiness or startup | any                       | any time                                    |
    | none                 | none: it never ended      | any time                                    |
    | none                 | 10 min or more            | any time                                    |
    | none                 | shorter                   | longer than the last one, from 10 s to 60 s |
    """
    if _has_probes(pod):
        return None
    waits = (_find_trial_of(container, now) for container in pod.get("status", {}).get("containerStatuses") or [])
    return max((wait for wait in waits if wait is not None), default=None)


def _find_trial_of(container: Json, now: datetime) -> timedelta | None:
    running = container.get("state", {}).get("running") or {}
    ended = container.get("lastState", {}).get("terminated") or {}
    if not (running.get("startedAt") and ended.get("startedAt") and ended.get("finishedAt")):
        return None
    last = datetime.fromisoformat(ended["finishedAt"]) - datetime.fromisoformat(ended["startedAt"])
    if last >= GOOD_RUN:
        return None
    # Kubernetes' times are whole seconds: one more, and this run is certainly longer.
    wanted = min(max(last + timedelta(seconds=1), SHORTEST_RUN), LONGEST_TRIAL)
    left = datetime.fromisoformat(running["startedAt"]) + wanted - now
    return left if left > timedelta() else None


def _has_probes(pod: Json) -> bool:
    spec = pod["spec"]
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    return any("readinessProbe" in container or "startupProbe" in container for container in containers)


def find_failure(pods: Sequence[Json], now: datetime | None = None) -> str | None:
    """Why a pod does not start, in the failing container's own words; with `now`, also of one that runs again and may
    be in a crash loop."""
    for pod in _current(pods):
        status = pod.get("status", {})
        is_on_trial = now is not None and find_trial(pod, now) is not None
        for container in _container_statuses(status):
            if message := _container_failure(container, is_on_trial=is_on_trial):
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
        condition = condition_of(pod, "PodScheduled")
        if condition is not None and condition.get("reason") == "Unschedulable":
            return str(condition.get("message") or "no node fits")[:MESSAGE_LIMIT]
    return None


def find_node_problem(node: Json) -> str | None:
    """Why a node is not Ready, in its own words; None when it is."""
    ready = condition_of(node, "Ready")
    if ready is None:
        return "it has not reported yet"
    if ready["status"] == "True":
        return None
    return ": ".join(filter(None, (ready.get("reason"), ready.get("message")))) or f"Ready is {ready['status']}"


def is_finished(pod: Json) -> bool:
    """Whether the pod runs nothing any more: it needs no node, and holds neither GPUs nor volumes."""
    return (pod.get("status") or {}).get("phase") in FINISHED


def find_away(pods: Sequence[Json], away: Mapping[str, str]) -> str | None:
    """Which pod is on a node that is not Ready. One that has ended needs no node."""
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in away and not is_finished(pod):
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
    condition = condition_of(item, kind)
    return condition.get("message") if condition is not None and condition["status"] == status else None


def _current(pods: Sequence[Json]) -> Iterator[Json]:
    """A pod on its way out says nothing about the one that comes."""
    return (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])


def _container_statuses(status: Json) -> Iterable[Json]:
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def _container_failure(container: Json, *, is_on_trial: bool = False) -> str | None:
    """
    | state                              | last state | answer                                       |
    | ---------------------------------- | ---------- | -------------------------------------------- |
    | waiting, harmless reason           | any        | none                                         |
    | waiting, CrashLoopBackOff          | terminated | how it ended, else the wait's message        |
    | waiting, any other reason          | any        | reason: message                              |
    | terminated with code 0             | any        | none                                         |
    | terminated with another code       | any        | how it ended                                 |
    | running, on trial after a restart  | terminated | how it ended, and that it runs again         |
    | running, any other                 | any        | none                                         |
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
    ended = container.get("lastState", {}).get("terminated")
    if is_on_trial and "running" in state and ended:
        return f"restarted {container.get('restartCount', 1)} times; its last run: {_ending(ended)}"
    return None


def _ending(terminated: Json) -> str:
    how = f"{terminated.get('reason') or 'Error'} (exit code {terminated.get('exitCode')})"
    message = (terminated.get("message") or "").strip()
    return f"{message} – {how}" if message else how
