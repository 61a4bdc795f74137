import pytest

from gpu_platform.devcluster.hostnode.processes import Probe, ProbeCount, ProbeKind, find_probes
from tests.unit.devcluster.hostnode.builders import make_container


def verdicts(results: str, successes: int, failures: int) -> list[bool | None]:
    """The verdict after each result; `+` is a success, `-` a failure."""
    spec = {"successThreshold": successes, "failureThreshold": failures}
    probe, count, seen = Probe.parse(ProbeKind.READINESS, spec), ProbeCount(), []
    for result in results:
        count = count.after(result == "+", probe)
        seen.append(count.verdict)
    return seen


@pytest.mark.parametrize(
    ("results", "successes", "failures", "want"),
    [
        ("+", 1, 3, [True]),
        ("--", 1, 3, [None, None]),
        ("---", 1, 3, [None, None, False]),
        ("--+--", 1, 3, [None, None, True, True, True]),
        ("+---+", 1, 3, [True, True, True, False, True]),
        ("+-+", 2, 1, [None, False, False]),
        ("-++", 2, 1, [False, False, True]),
    ],
)
def test_a_verdict_needs_its_threshold_in_a_row(
    results: str, successes: int, failures: int, want: list[bool | None]
) -> None:
    assert verdicts(results, successes, failures) == want


def test_the_numbers_have_the_defaults_of_the_api() -> None:
    probe = Probe.parse(ProbeKind.LIVENESS, {"exec": {"command": ["x"]}})
    assert (probe.initial_delay_seconds, probe.period_seconds, probe.timeout_seconds) == (0, 10, 1)
    assert (probe.success_threshold, probe.failure_threshold) == (1, 3)


def test_the_startup_probe_comes_alone_and_first() -> None:
    container = make_container(
        startupProbe={"periodSeconds": 1}, readinessProbe={"exec": {}}, livenessProbe={"exec": {}}
    )
    assert [probe.kind for probe in find_probes(container, started=False)] == [ProbeKind.STARTUP]
    assert [probe.kind for probe in find_probes(container, started=True)] == [
        ProbeKind.READINESS,
        ProbeKind.LIVENESS,
    ]
    assert find_probes(make_container(), started=True) == ()
