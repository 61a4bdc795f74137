"""What `gpu-platform bootstrap` prints while Pulumi works."""

import pytest
from pulumi import automation
from pulumi.automation import events

from infra.bootstrap import Progress

URN = "urn:pulumi:dev::gpu-platform::gpu-platform:infra:Workloads$kubernetes:apps/v1:Deployment::runtime-system/api"


def tell(severity: str, message: str, *, ephemeral: bool) -> automation.EngineEvent:
    told = events.DiagnosticEvent(message=message, color="never", severity=severity, ephemeral=ephemeral, urn=URN)
    return automation.EngineEvent(sequence=1, timestamp=1, diagnostic_event=told)


def test_what_an_object_waits_for_is_shown_and_not_taken_for_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(is_quiet=False)

    progress.take(tell("info", "<{%reset%}>waiting: 1 pod cannot be scheduled: 0/4 nodes<{%reset%}>\n", ephemeral=True))
    progress.take(tell("info", "", ephemeral=True))
    progress.take(tell("info", "for the log", ephemeral=False))

    shown = "  … Deployment runtime-system/api: waiting: 1 pod cannot be scheduled: 0/4 nodes\n"
    assert capsys.readouterr().out == shown
    assert progress.problems == []


def test_an_error_is_a_problem_without_marks_of_colour() -> None:
    progress = Progress(is_quiet=True)

    progress.take(tell("error", "<{%reset%}>it is\n not ready<{%reset%}>", ephemeral=False))

    assert progress.problems == ["it is not ready"]
