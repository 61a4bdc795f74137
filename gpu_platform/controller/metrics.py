"""What a daemon counts, for Prometheus. A registry of its own, so that two daemons in one test do not meet."""

from collections.abc import Callable, Sized

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PASS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""A pass that finds nothing to do takes well under a millisecond; one that waits for a pod, some seconds."""


class Metrics:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.registry = CollectorRegistry()
        self._passes = Counter(
            f"{prefix}_passes",
            "Passes over one object, by how they ended.",
            ("controller", "result"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            f"{prefix}_pass_seconds",
            "Duration of a pass.",
            ("controller",),
            buckets=PASS_SECONDS,
            registry=self.registry,
        )
        self._queued = Gauge(f"{prefix}_queue_length", "Keys that are due.", ("controller",), registry=self.registry)
        self._cached = Gauge(
            f"{prefix}_cache_objects", "Objects held in memory.", ("resource",), registry=self.registry
        )
        self._writes = Counter(
            f"{prefix}_api_writes", "Writes sent to the API server.", ("verb", "resource"), registry=self.registry
        )

    def count_pass(self, controller: str, result: str, seconds: float) -> None:
        self._passes.labels(controller, result).inc()
        self._seconds.labels(controller).observe(seconds)

    def count_write(self, verb: str, resource: str) -> None:
        self._writes.labels(verb, resource).inc()

    def follow_queue(self, controller: str, length: Callable[[], int]) -> None:
        self._queued.labels(controller).set_function(length)

    def follow_cache(self, resource: str, cache: Sized) -> None:
        self._cached.labels(resource).set_function(lambda: len(cache))

    def follow_leadership(self, is_leader: Callable[[], bool]) -> None:
        leads = Gauge(f"{self._prefix}_is_leader", "1 while this process leads.", registry=self.registry)
        leads.set_function(lambda: int(is_leader()))

    def render(self) -> bytes:
        return generate_latest(self.registry)
