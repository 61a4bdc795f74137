"""Waiting for an object to be ready, or to be gone, with a limit and a word about what it waits for."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from providers.kubernetes.cluster import Cluster, Place
from providers.kubernetes.failures import NotReadyError, ResourceFailedError
from providers.kubernetes.property_values import Json
from providers.kubernetes.readiness import READY, Verdict, judge_readiness
from providers.kubernetes.type_tokens import ObjectType

DEFAULT_SECONDS = 600.0
"""As the official plugin: ten minutes for anything that a program does not give a limit of its own."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0

SERVERS_OWN = ("foregroundDeletion", "orphan")
"""Finalizers that the garbage collector removes by itself."""

Report = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class Patience:
    """How long to wait, who is told meanwhile, and what ends it early."""

    seconds: float
    report: Report
    cancelled: asyncio.Event


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
    await _wait(look, place, patience, NotReadyError, "is not ready")
    return current


async def wait_until_gone(cluster: Cluster, place: Place, uid: str | None, patience: Patience) -> None:
    async def look() -> Verdict:
        found = await cluster.find(place)
        if found is None or (uid and found["metadata"]["uid"] != uid):
            return READY
        finalizers = ", ".join(each for each in found["metadata"].get("finalizers", []) if each not in SERVERS_OWN)
        return Verdict(ready=False, reason=f"its finalizers are {finalizers}" if finalizers else "it is being deleted")

    await _wait(look, place, patience, ResourceFailedError, "is not gone")


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


async def _wait(
    look: Callable[[], Awaitable[Verdict]],
    place: Place,
    patience: Patience,
    failure: type[ResourceFailedError],
    what: str,
) -> None:
    clock = asyncio.get_running_loop().time
    deadline, pause, said = clock() + patience.seconds, FIRST_PAUSE, ""
    while not (verdict := await look()).ready:
        name = f"{place.kind.kind} {place.id}"
        if verdict.hopeless:
            raise failure(f"{name} {what}: {verdict.reason}")
        if patience.cancelled.is_set():
            raise failure(f"{name} {what}, and the update was cancelled: {verdict.reason}")
        if clock() > deadline:
            raise failure(f"{name} {what} after {patience.seconds:.0f} s: {verdict.reason}")
        if verdict.reason != said:
            said = verdict.reason
            await patience.report(f"waiting: {said}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(patience.cancelled.wait(), pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    if said:
        await patience.report("")
