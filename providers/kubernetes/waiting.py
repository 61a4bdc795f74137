"""Waiting for an object to be ready, or to be gone."""

from providers.kubernetes.cluster import Cluster, Place
from providers.kubernetes.readiness import judge_readiness
from providers.kubernetes.type_tokens import ObjectType
from providers.protocol.failures import NotReadyError, ResourceFailedError
from providers.protocol.property_values import Json
from providers.protocol.waiting import READY, Patience, Verdict, wait_until

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
        return await _judge(cluster, place.kind, current)

    if (await _judge(cluster, place.kind, live)).ready:
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


async def _judge(cluster: Cluster, kind: ObjectType, live: Json) -> Verdict:
    verdict = judge_readiness(kind, live)
    if verdict.ready and kind.kind == "CustomResourceDefinition":
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
