"""How long workers take to come, step by step, for whoever watches the figures."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Histogram

from gpu_platform.controller.loop import Key
from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import Phase
from gpu_platform.domain.metadata import find_instant
from gpu_platform.domain.stock import claimed_at

Json = dict[str, Any]
Pods = Callable[[Json], Sequence[Json]]

SCHEDULED = "PodScheduled"


class WorkerStarts:
    """Counts each worker once, and only those that were seen to start: what was there before this process came, another
    one has counted."""

    def __init__(self, registry: CollectorRegistry, now: Callable[[], datetime]) -> None:
        self._now = now
        self._starting: dict[Key, frozenset[str]] = {}
        self._seconds = Histogram(
            "gpu_platform_reconciler_worker_start_seconds",
            "Time from the decision that a function needs a worker until its stock was claimed, its pod had a node, it "
            "was Ready",
            ("phase",),
            registry=registry,
            buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
        )

    def note(self, function: Key, workers: Iterable[Json], pods_of: Pods) -> None:
        before = self._starting.get(function, frozenset())
        starting: set[str] = set()
        for worker in workers:
            if worker.get("status", {}).get("phase") != Phase.READY:
                starting.add(worker["metadata"]["uid"])
            elif worker["metadata"]["uid"] in before:
                for phase, seconds in measure_start(worker, pods_of(worker), self._now()):
                    self._seconds.labels(phase).observe(seconds)
        self._starting[function] = frozenset(starting)

    def forget(self, function: Key) -> None:
        self._starting.pop(function, None)


def measure_start(worker: Json, pods: Sequence[Json], ready_at: datetime) -> Iterator[tuple[str, float]]:
    """Seconds since it was decided, by phase; nothing for a unit that joined by itself."""
    woken_at = find_instant(worker, names.ANNOTATION_WOKEN_AT, ready_at)
    if woken_at is None:
        return
    instants = {"claimed": claimed_at(worker, ready_at), "scheduled": _scheduled_at(pods), "ready": ready_at}
    for phase, instant in instants.items():
        if instant is not None:
            # Conditions tell whole seconds.
            yield phase, max(0.0, (instant - woken_at).total_seconds())


def _scheduled_at(pods: Sequence[Json]) -> datetime | None:
    conditions = (each for pod in pods for each in pod.get("status", {}).get("conditions") or ())
    times = [
        each["lastTransitionTime"] for each in conditions if each["type"] == SCHEDULED and each["status"] == "True"
    ]
    return datetime.fromisoformat(min(times)) if times else None
