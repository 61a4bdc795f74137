"""What the stack worker counts, beside what every daemon counts."""

import time

from prometheus_client import Counter, Gauge, Histogram

from gpu_platform.controller.loop import Key
from gpu_platform.controller.metrics import Metrics

PREFIX = "gpu_platform_stack_worker"
RUN_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)


class WorkerMetrics(Metrics):
    def __init__(self) -> None:
        super().__init__(PREFIX)
        self._due_since: dict[Key, float] = {}
        self._seconds_of_runs = Histogram(
            f"{PREFIX}_run_seconds",
            "Duration of Pulumi's work on one stack.",
            ("action",),
            buckets=RUN_SECONDS,
            registry=self.registry,
        )
        self._failures = Counter(
            f"{PREFIX}_failures", "Runs that failed, by what was wrong.", ("action", "fault"), registry=self.registry
        )
        self._audits = Counter(
            f"{PREFIX}_audits", "Stacks that were compared with the cluster.", ("result",), registry=self.registry
        )
        due = Gauge(f"{PREFIX}_due_stacks", "Stacks that differ from what was accepted.", registry=self.registry)
        due.set_function(lambda: len(self._due_since))
        age = Gauge(f"{PREFIX}_oldest_due_seconds", "Since when the oldest of them does.", registry=self.registry)
        age.set_function(self._oldest)

    def count_run(self, action: str, seconds: float) -> None:
        self._seconds_of_runs.labels(action).observe(seconds)

    def count_failure(self, action: str, fault: str) -> None:
        self._failures.labels(action, fault).inc()

    def count_audit(self, result: str) -> None:
        self._audits.labels(result).inc()

    def note_due(self, key: Key) -> None:
        self._due_since.setdefault(key, time.monotonic())

    def note_settled(self, key: Key) -> None:
        self._due_since.pop(key, None)

    def _oldest(self) -> float:
        return time.monotonic() - min(self._due_since.values(), default=time.monotonic())
