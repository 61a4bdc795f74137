"""Waiting for an object to be ready, or to be gone."""

from dataclasses import replace

from gpu_platform.devcluster.pulumi_kubernetes.cluster import Cluster, Place
from gpu_platform.devcluster.pulumi_kubernetes.readiness import describe_unscheduled, judge_readiness
from gpu_platform.pulumi_protocol.properties import Json
from gpu_platform.pulumi_protocol.resource import READY, Patience, Verdict, wait_until
from providers.kubernetes.type_tokens import ObjectType
from providers.protocol.failures import NotReadyError, ResourceFailedError

DEFAULT_SECONDS = 600.0
"""As the official plugin: ten minutes for anything that a program does not give a limit of its own."""

SERVERS_OWN = ("foregroundDeletion", "orphan")
"""Finalizers that the garbage collector removes by itself."""


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
