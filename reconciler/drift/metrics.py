"""What the drift controller counts, beside what every controller counts."""

from prometheus_client import CollectorRegistry, Counter


class DriftMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._corrections = Counter(
            "gpu_platform_reconciler_drift_corrections",
            "Objects that somebody had edited behind the API, by what became of it.",
            ("kind", "result"),
            registry=registry,
        )

    def count_corrected(self, kind: str) -> None:
        self._corrections.labels(kind, "corrected").inc()

    def count_refused(self, kind: str) -> None:
        self._corrections.labels(kind, "refused").inc()
