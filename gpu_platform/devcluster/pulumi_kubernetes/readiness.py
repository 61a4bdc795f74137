"""When an object is ready or gone, and waiting for it."""

from collections.abc import Sequence
from dataclasses import replace

from gpu_platform.devcluster.pulumi_kubernetes.cluster import Cluster, Place
from gpu_platform.devcluster.pulumi_kubernetes.inputs import ObjectType
from gpu_platform.domain.conditions import condition_of, is_true
from gpu_platform.domain.json_text import Json
from gpu_platform.pulumi_protocol.resource import (
    READY,
    NotReadyError,
    Patience,
    ResourceFailedError,
    Verdict,
    wait_until,
)

DEFAULT_SECONDS = 600.0
"""As the official plugin: ten minutes for anything that a program does not give a limit of its own."""

SERVERS_OWN = ("foregroundDeletion", "orphan")
"""Finalizers that the garbage collector removes by itself."""


def judge_readiness(kind: ObjectType, live: Json) -> Verdict:
    """
    | kind | ready when |
    |---|---|
    | CustomResourceDefinition | it is Established; a name that another one has is hopeless |
    | Namespace | its phase is Active |
    | Deployment | every replica runs the newest template and is available; a passed progress deadline is hopeless |
    | any other | always |
    """
    match (kind.group, kind.kind):
        case ("apiextensions.k8s.io", "CustomResourceDefinition"):
            return _judge_definition(live)
        case ("", "Namespace"):
            phase = live.get("status", {}).get("phase")
            return READY if phase == "Active" else Verdict(ready=False, reason=f"its phase is {phase or 'not known'}")
        case ("apps", "Deployment"):
            return _judge_deployment(live)
    return READY


def describe_unscheduled(pods: Sequence[Json]) -> str:
    """The scheduler's own reason for pods that fit on no node; empty if all of them have one."""
    waiting = [condition for pod in pods if _is_unschedulable(condition := _condition(pod, "PodScheduled"))]
    if not waiting:
        return ""
    count = "1 pod" if len(waiting) == 1 else f"{len(waiting)} pods"
    return f"{count} cannot be scheduled: {waiting[0].get('message', 'no node fits')}"


def _is_unschedulable(condition: Json) -> bool:
    return condition.get("status") == "False" and condition.get("reason") == "Unschedulable"


def _judge_definition(live: Json) -> Verdict:
    names = _condition(live, "NamesAccepted")
    if names.get("status") == "False":
        return Verdict(ready=False, reason=f"its names are refused: {names.get('message')}", hopeless=True)
    if is_true(live, "Established"):
        return READY
    return Verdict(ready=False, reason="it is not established yet")


def _judge_deployment(live: Json) -> Verdict:
    spec, status = live["spec"], live.get("status", {})
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return Verdict(ready=False, reason="its controller has not seen it yet")
    if spec.get("paused"):
        return READY
    progressing = _condition(live, "Progressing")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return Verdict(ready=False, reason=str(progressing.get("message")), hopeless=True)
    wanted = spec.get("replicas", 1)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated >= wanted and status.get("replicas", 0) <= updated and available >= updated:
        return READY
    failure = _condition(live, "ReplicaFailure").get("message")
    reason = f"{available} of {wanted} replicas are available, {updated} have the newest template"
    return Verdict(ready=False, reason=f"{reason}: {failure}" if failure else reason)


def _condition(live: Json, name: str) -> Json:
    return condition_of(live, name) or {}


async def wait_until_ready(cluster: Cluster, place: Place, live: Json, patience: Patience) -> Json:
    """The object as it is when it is ready; NotReadyError when it is not in time, or never will be."""
    current = live

    async def look() -> Verdict:
        nonlocal current
        found = await cluster.find(place)
        if found is None:
            return Verdict(ready=False, reason="it was deleted meanwhile", hopeless=True)
        current = found
        return await _judge(cluster, place, current)

    if (await _judge(cluster, place, live)).ready:
        return live
    await wait_until(look, patience, f"{place.label} is not ready", NotReadyError)
    return current


async def wait_until_gone(cluster: Cluster, place: Place, uid: str | None, patience: Patience) -> None:
    async def look() -> Verdict:
        found = await cluster.find(place)
        if found is None or (uid and found["metadata"]["uid"] != uid):
            return READY
        finalizers = ", ".join(each for each in found["metadata"].get("finalizers", []) if each not in SERVERS_OWN)
        return Verdict(ready=False, reason=f"its finalizers are {finalizers}" if finalizers else "it is being deleted")

    await wait_until(look, patience, f"{place.label} is not gone", ResourceFailedError)


async def _judge(cluster: Cluster, place: Place, live: Json) -> Verdict:
    verdict = judge_readiness(place.kind, live)
    if not verdict.ready and place.kind.kind == "Deployment":
        # Its own status does not say why a pod has no node.
        pods = await cluster.list_pods(place.namespace, live["spec"]["selector"].get("matchLabels", {}))
        if cause := describe_unscheduled(pods):
            return replace(verdict, reason=f"{verdict.reason}; {cause}")
    if verdict.ready and place.kind.kind == "CustomResourceDefinition":
        # Established means that it will be served. Until it is, its objects are refused as unknown.
        for defined in _served_kinds(live):
            if not await cluster.serves(defined):
                return Verdict(ready=False, reason=f"{defined} is not served yet")
    return verdict


def _served_kinds(definition: Json) -> tuple[ObjectType, ...]:
    spec = definition["spec"]
    return tuple(
        ObjectType(f"{spec['group']}/{version['name']}", spec["names"]["kind"])
        for version in spec["versions"]
        if version["served"]
    )
