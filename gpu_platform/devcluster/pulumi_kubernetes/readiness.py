"""Whether an object does what it was made for. Only for the few kinds that others in a program stand on."""

from collections.abc import Sequence
from typing import Any

from gpu_platform.pulumi_protocol.resource import READY, Verdict
from providers.kubernetes.type_tokens import ObjectType

Json = dict[str, Any]


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
    if _condition(live, "Established").get("status") == "True":
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
    # A new definition says `conditions: null`.
    conditions = live.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == name), {})
