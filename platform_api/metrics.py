"""What the API counts of itself. The platform's own figures come from `health.collector`."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class ApiMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter("gpu_platform_api_requests", "Answers", labels, registry=self.registry)
        self._seconds = Histogram(
            "gpu_platform_api_request_seconds",
            "Time from the request to the end of its answer",
            ("method", "route"),
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10),
        )
        self._claims = Counter("gpu_platform_api_claims", "Tries to claim stock", ("outcome",), registry=self.registry)
        self._calls = Counter(
            "gpu_platform_api_invocations", "Calls of functions that were accepted", ("mode",), registry=self.registry
        )
        self._refused_calls = Counter(
            "gpu_platform_api_invocations_refused", "Calls that were not", ("reason",), registry=self.registry
        )
        self._sync_waits = Histogram(
            "gpu_platform_api_sync_wait_seconds",
            "Time for which a caller waited for a call to be over",
            ("outcome",),
            registry=self.registry,
            buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
        )
        self._cold_calls = Histogram(
            "gpu_platform_api_cold_call_seconds",
            "Time from the acceptance of a call that was waited for, and that had to wait for its worker, to each step",
            ("phase",),
            registry=self.registry,
            buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
        )
        self._passages = Counter(
            "gpu_platform_api_proxied", "Calls to units, by how they ended", ("outcome",), registry=self.registry
        )
        self.open_passages = Gauge("gpu_platform_api_proxied_open", "Calls to units", registry=self.registry)
        self.connections = Gauge("gpu_platform_api_connections", "Open connections of clients", registry=self.registry)
        self._refused_connections = Counter(
            "gpu_platform_api_connections_refused",
            "Connections that were closed before an answer of a route",
            ("reason",),
            registry=self.registry,
        )
        self.streams = Gauge("gpu_platform_api_streams", "Streams that are open", registry=self.registry)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        # Methods are the caller's words: an unknown one must not become a new series.
        method = method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH") else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def count_claim(self, outcome: str) -> None:
        self._claims.labels(outcome).inc()

    def count_accepted_call(self, mode: str) -> None:
        self._calls.labels(mode).inc()

    def count_refused_call(self, reason: str) -> None:
        self._refused_calls.labels(reason).inc()

    def count_sync_wait(self, outcome: str, seconds: float) -> None:
        self._sync_waits.labels(outcome).observe(seconds)

    def count_cold_call(self, phases: Mapping[str, float]) -> None:
        for phase, seconds in phases.items():
            self._cold_calls.labels(phase).observe(seconds)

    def count_passage(self, outcome: str) -> None:
        self._passages.labels(outcome).inc()

    def count_refused_connection(self, reason: str) -> None:
        self._refused_connections.labels(reason).inc()

    def render(self) -> bytes:
        return generate_latest(self.registry)
