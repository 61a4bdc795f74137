"""Health, from memory alone: it answers at once also while Kubernetes hangs, which is when it is asked for.

Also writes the same state as a log line from time to time, for those who have nothing but the log afterwards.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpu_platform.api_models.health import HealthView
from gpu_platform.api_models.stock import PoolView
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import PoolPhase
from platform_api.deps import Deps
from platform_api.health.gpu_readings import Reading, sum_readings
from platform_api.health.inventory import GpuNode, count_specs, read_nodes, sum_products
from platform_api.stock import service as stock_pools

NAMED = 5
"""Nodes or pools that one sentence names."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Observed:
    started_at: datetime
    now: datetime
    kube_error: str | None
    """Why Kubernetes cannot be used; None when it can."""

    unlisted: tuple[str, ...]
    """Kinds that were not listed yet."""

    keys_are_missing: bool
    nodes: tuple[Json, ...] = ()
    units: tuple[Json, ...] = ()
    pools: tuple[Json, ...] = ()
    queue_error: str | None = None
    """Why calls cannot be accepted; None also where none are to be."""

    is_queue_connected: bool = False

    gpus: tuple[Reading, ...] | None = None
    """What the GPUs themselves say; None where they are not asked, or do not answer."""

    gpu_error: str | None = None
    """Why they cannot be asked; None also where they are not to be."""


def observe_health(deps: Deps) -> Observed:
    cluster = deps.cluster
    gpus = deps.gpus.readings if deps.gpus.is_connected else None
    gpu_error = deps.gpus.problem if deps.gpus.is_configured else None
    if cluster is None:
        return Observed(
            deps.started_at,
            deps.now(),
            _absence(deps),
            (),
            keys_are_missing=False,
            gpus=gpus,
            gpu_error=gpu_error,
        )
    return Observed(
        started_at=deps.started_at,
        now=deps.now(),
        kube_error=None if cluster.pulse.is_felt else cluster.pulse.problem or "Kubernetes was not asked yet",
        unlisted=tuple(cache.name for cache in cluster.caches if not cache.is_synced),
        keys_are_missing=_keys_are_missing(deps),
        nodes=cluster.nodes.objects(),
        units=cluster.units.objects(),
        pools=cluster.pools.objects(names.STOCK_NAMESPACE),
        queue_error=(deps.queue.problem or deps.queue.storage_problem) if deps.queue.is_configured else None,
        is_queue_connected=deps.queue.is_configured and deps.queue.problem is None,
        gpus=gpus,
        gpu_error=gpu_error,
    )


def find_unready(deps: Deps) -> tuple[str, ...]:
    """Why this process should get no requests; empty when it should. Without Kubernetes by choice, it should."""
    if deps.cluster is None:
        return () if deps.settings.kube_mode == "off" else (_absence(deps),)
    keys = ("the API keys have not been read yet",) if _keys_are_missing(deps) else ()
    return (*deps.cluster.find_problems(), *keys)


def build_health(observed: Observed) -> HealthView:
    nodes = read_nodes(observed.nodes)
    capacity, allocatable = sum(node.capacity for node in nodes), sum(node.allocatable for node in nodes)
    totals = sum_readings(observed.gpus or ())
    stock_count = sum(names.is_stock_namespace(unit["metadata"]["namespace"]) for unit in observed.units)
    return HealthView(
        started_at=observed.started_at,
        uptime_seconds=max(0, int((observed.now - observed.started_at).total_seconds())),
        kubernetes_connected=observed.kube_error is None,
        node_count=len(nodes),
        ready_node_count=sum(node.is_ready for node in nodes),
        kube_error=observed.kube_error,
        stock_unit_count=stock_count,
        active_unit_count=len(observed.units) - stock_count,
        total_gpu_capacity=capacity,
        total_gpu_allocatable=allocatable,
        capacity_as_before=capacity,
        allocatable_as_before=allocatable,
        gpu_products=sum_products(nodes),
        nvidia_metrics_connected=observed.gpus is not None,
        nvidia_metrics_error=observed.gpu_error,
        gpu_device_count=totals.device_count,
        total_gpu_memory_mib=totals.total_mib,
        used_gpu_memory_mib=totals.used_mib,
        free_gpu_memory_mib=totals.free_mib,
        average_gpu_utilization_percent=totals.average_utilization_percent,
        nats_connected=observed.is_queue_connected,
        nats_error=observed.queue_error,
        degraded=find_causes(observed, nodes),
    )


def find_causes(observed: Observed, nodes: Sequence[GpuNode]) -> tuple[str, ...]:
    """
    | state                                              | sentence                               |
    | -------------------------------------------------- | -------------------------------------- |
    | Kubernetes is away                                 | and why                                |
    | a kind was not listed yet                          | which; no more is known                |
    | nodes are not ready                                | how many, and which                    |
    | pools are Failed                                   | which, and the first one's reason      |
    | pools hold less than they should (but see below)   | which, and how much                    |
    | the API keys were not read                         | nobody can be let in                   |
    | NATS is configured, and away or stores nothing     | no calls are taken, and why            |
    | the GPUs are to be asked, and cannot be            | and why                                |

    A pool with `replenish: Never` holds what is left of it: that is no lack.
    """
    causes = []
    if observed.kube_error is not None:
        causes.append(f"Kubernetes cannot be used: {observed.kube_error}.")
    if observed.unlisted:
        causes.append(f"Not listed yet: {', '.join(observed.unlisted)}.")
    unready = [node.name for node in nodes if not node.is_ready]
    if unready:
        causes.append(f"{len(unready)} of {len(nodes)} nodes are not ready: {_named(unready)}.")
    pools = sorted(map(stock_pools.view_pool, observed.pools), key=lambda pool: pool.name)
    failed = [pool for pool in pools if pool.phase is PoolPhase.FAILED]
    if failed:
        why = failed[0].message or failed[0].reason or "no reason is known"
        causes.append(f"Stock pools have failed: {_named([pool.name for pool in failed])} ({why}).")
    lacking = [f"{pool.name} ({pool.available} of {pool.replicas})" for pool in pools if _lacks_stock(pool)]
    if lacking:
        causes.append(f"Stock pools are not full: {_named(lacking)}.")
    if observed.keys_are_missing:
        causes.append("The API keys have not been read yet, so nobody can be let in.")
    if observed.queue_error is not None:
        causes.append(f"No calls of functions are taken: {observed.queue_error}. Those that were accepted are safe.")
    if observed.gpu_error is not None:
        causes.append(f"The GPUs' own figures are missing: {observed.gpu_error}.")
    return tuple(causes)


def _lacks_stock(pool: PoolView) -> bool:
    is_kept_full = pool.replenish == "Always" and pool.phase in (PoolPhase.READY, PoolPhase.PROGRESSING)
    return is_kept_full and pool.available < pool.replicas


def _named(items: Sequence[str]) -> str:
    more = f" and {len(items) - NAMED} more" if len(items) > NAMED else ""
    return f"{', '.join(items[:NAMED])}{more}"


def _absence(deps: Deps) -> str:
    mode = deps.settings.kube_mode
    return "kubeMode is off" if mode == "off" else f"there is no Kubernetes to talk to (kubeMode: {mode})"


def _keys_are_missing(deps: Deps) -> bool:
    return deps.settings.auth == "keys" and not deps.key_ring.is_read


async def report_for_ever(deps: Deps, interval_seconds: float) -> None:
    while True:
        await asyncio.sleep(interval_seconds)
        log.info("runtime status", extra=build_report(observe_health(deps)))


def build_report(observed: Observed) -> Json:
    stock = [unit for unit in observed.units if names.is_stock_namespace(unit["metadata"]["namespace"])]
    return {
        "health": build_health(observed).to_json(),
        "stock": {
            spec.spec_name: {"available": spec.available, "claimed": spec.claimed} for spec in count_specs(stock, ())
        },
        "units": dict(sorted(_count_phases(observed.units).items())),
    }


def _count_phases(units: Iterable[Json]) -> Counter[str]:
    """Of tenants' units."""
    return Counter(
        (unit.get("status") or {}).get("phase") or "Unknown"
        for unit in units
        if not names.is_stock_namespace(unit["metadata"]["namespace"])
    )
