"""P7: how long a deleted child of a unit stays away, against a client that deletes and creates it itself."""

import asyncio
import random
import time
from contextlib import AsyncExitStack
from copy import deepcopy
from functools import partial
from itertools import chain

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import child_name
from gpu_platform.kube import KubeClient, ResourcePath
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_UNITS, NETWORK_POLICIES, SERVICES
from tests.bench.figures import Figure, Goal, p50, p99
from tests.bench.reconciler_process import nothing_is_written
from tests.bench.sightings import Sightings, is_named, seen, watching
from tests.bench.workloads import BARE, PORTS, TINY_SPEC, Bench, is_ready_unit
from tests.support.units_and_stock import INSTANCES, create_unit, unit_body

DELETIONS = 100
UNITS = 34
"""Three children each: enough for every deletion to hit another one."""

KINDS: dict[str, ResourcePath] = {
    "Deployment": DEPLOYMENTS,
    "Service": SERVICES,
    "NetworkPolicy": NETWORK_POLICIES,
}
ALLOCATED_FIELDS = ("clusterIP", "clusterIPs")
"""Of a Service: the deleted one may still hold its address."""


async def measure_repair(bench: Bench) -> list[Figure]:
    kube = bench.kube
    units = [f"p7-{number}" for number in range(UNITS)]
    repaired: dict[str, list[float]] = {kind: [] for kind in KINDS}
    bare: dict[str, list[float]] = {kind: [] for kind in KINDS}
    children = [(kind, unit) for kind in KINDS for unit in units]
    async with AsyncExitStack() as stack:
        seen_units = await stack.enter_async_context(watching(kube, GPU_UNITS.collection(INSTANCES)))
        watched = {
            kind: await stack.enter_async_context(watching(kube, path.collection())) for kind, path in KINDS.items()
        }
        await make_units(kube, seen_units, units)
        await nothing_is_written(bench)
        counterparts = {kind: await make_counterpart(kube, kind, child_name(units[0])) for kind in KINDS}
        for kind, unit in random.sample(children, DELETIONS):
            repaired[kind].append(await time_repair(kube, watched[kind], KINDS[kind], child_name(unit)))
            bare[kind].append(await time_replacement(kube, watched[kind], KINDS[kind], counterparts[kind]))
    return build_figures(repaired, bare)


def build_figures(repaired: dict[str, list[float]], bare: dict[str, list[float]]) -> list[Figure]:
    all_repaired, all_bare = (list(chain.from_iterable(each.values())) for each in (repaired, bare))
    return [
        Figure(
            "P7",
            "deleted child is back, p99 ÷ bare delete + create",
            p99(all_repaired),
            "s",
            len(all_repaired),
            p99(all_bare),
            Goal(1.0),
        ),
        *(
            Figure("P7", f"  {kind}, p50", p50(repaired[kind]), "s", len(repaired[kind]), p50(bare[kind]))
            for kind in KINDS
        ),
    ]


async def make_units(kube: KubeClient, sightings: Sightings, names: list[str]) -> None:
    moments = [sightings.expect(partial(is_ready, name)) for name in names]
    for name in names:
        await create_unit(kube, unit_body(name, specName=TINY_SPEC, template=PORTS))
    await asyncio.gather(*map(seen, moments))


def is_ready(name: str, item: Json) -> bool:
    return is_named(item, name, INSTANCES) and is_ready_unit(item)


async def make_counterpart(kube: KubeClient, kind: str, name: str) -> Json:
    """The same object, but nobody's: without the labels by which the reconciler knows its own."""
    live = await kube.get(KINDS[kind].item(name, INSTANCES))
    spec = {key: value for key, value in deepcopy(live["spec"]).items() if key not in ALLOCATED_FIELDS}
    labels = {"app": "bench-p7"}
    match kind:
        case "Deployment":
            spec["selector"] = {"matchLabels": labels}
            spec["template"]["metadata"] = {"labels": labels}
        case "Service":
            spec["selector"] = labels
        case "NetworkPolicy":
            spec["podSelector"] = {"matchLabels": labels}
    body = {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": {"name": "bench-p7", "namespace": BARE},
        "spec": spec,
    }
    await kube.create(KINDS[kind].collection(BARE), body)
    return body


async def time_repair(kube: KubeClient, sightings: Sightings, path: ResourcePath, name: str) -> float:
    """Delete a unit's child and wait for its successor."""
    old = await kube.get(path.item(name, INSTANCES))
    back_at = sightings.expect(lambda item: is_successor(item, old))
    started_at = time.perf_counter()
    await kube.delete(path.item(name, INSTANCES))
    return await seen(back_at) - started_at


async def time_replacement(kube: KubeClient, sightings: Sightings, path: ResourcePath, body: Json) -> float:
    """Delete the counterpart, create it again, and wait until a watch shows it."""
    name = body["metadata"]["name"]
    old = await kube.get(path.item(name, BARE))
    back_at = sightings.expect(lambda item: is_successor(item, old))
    started_at = time.perf_counter()
    await kube.delete(path.item(name, BARE))
    await kube.create(path.collection(BARE), body)
    return await seen(back_at) - started_at


def is_successor(item: Json, old: Json) -> bool:
    metadata = old["metadata"]
    return is_named(item, metadata["name"], metadata["namespace"]) and item["metadata"]["uid"] != metadata["uid"]
