"""When a probe has spoken: counting successes and failures against their thresholds. Pure."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from gpu_platform.kube.client import Json


class ProbeKind(StrEnum):
    STARTUP = "startup"
    READINESS = "readiness"
    LIVENESS = "liveness"


@dataclass(frozen=True)
class Probe:
    kind: ProbeKind
    handler: Json
    initial_delay_seconds: float
    period_seconds: float
    timeout_seconds: float
    success_threshold: int
    failure_threshold: int

    @classmethod
    def parse(cls, kind: ProbeKind, spec: Json) -> Self:
        """The defaults are those of the API server, which fills them in anyway."""
        return cls(
            kind=kind,
            handler=spec,
            initial_delay_seconds=spec.get("initialDelaySeconds") or 0,
            period_seconds=spec.get("periodSeconds") or 10,
            timeout_seconds=spec.get("timeoutSeconds") or 1,
            success_threshold=spec.get("successThreshold") or 1,
            failure_threshold=spec.get("failureThreshold") or 3,
        )


@dataclass(frozen=True)
class ProbeCount:
    """Results in a row. The verdict is `None` until one of the thresholds has been reached."""

    verdict: bool | None = None
    successes: int = 0
    failures: int = 0

    def after(self, succeeded: bool, probe: Probe) -> Self:
        successes = self.successes + 1 if succeeded else 0
        failures = 0 if succeeded else self.failures + 1
        verdict = self.verdict
        if successes >= probe.success_threshold:
            verdict = True
        if failures >= probe.failure_threshold:
            verdict = False
        return replace(self, verdict=verdict, successes=successes, failures=failures)


def find_probes(container: Json, *, started: bool) -> tuple[Probe, ...]:
    """The probes that are due: the startup probe alone until it has passed, the other two afterwards."""
    kinds = (ProbeKind.READINESS, ProbeKind.LIVENESS) if started else (ProbeKind.STARTUP,)
    return tuple(Probe.parse(kind, spec) for kind in kinds if (spec := container.get(f"{kind}Probe")))
