"""Every way in which a run fails has a name that a program can act on, and a line that a person can read."""

import pytest
from pulumi.automation import CommandResult

from stacks.runner.results import LONGEST_MESSAGE, Diagnostic, Fault, Run, build_failure, tidy

UNIT = "urn:pulumi:acme.one::gpu-unit::gpuplatform:index:GpuUnit::one"
PROVIDER = "urn:pulumi:acme.one::gpu-unit::pulumi:providers:gpuplatform::default"

LOCKED = """error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end, or …
  file:///state/fe/.pulumi/locks/…/acme.one/1.json: created by root@box (pid 12) at 2026-11-16T10:00:00Z
"""


def run_with(*errors: Diagnostic) -> Run:
    return Run({}, 0, errors, frozenset(error.urn for error in errors if error.urn == UNIT))


@pytest.mark.parametrize(
    ("code", "stderr", "run", "error", "fault", "message"),
    [
        pytest.param(1, "", run_with(), ValueError("no such spec"), Fault.PROGRAM, "ValueError: no such spec"),
        pytest.param(
            1, LOCKED, run_with(), None, Fault.LOCKED, "locked by root@box (pid 12) since 2026-11-16T10:00:00Z"
        ),
        pytest.param(
            6,
            "error: no stack named 'acme.one' found\n",
            run_with(),
            None,
            Fault.NOT_FOUND,
            "no stack named 'acme.one' found",
        ),
        pytest.param(
            1,
            "",
            run_with(Diagnostic("", "update failed\n"), Diagnostic(UNIT, "no free stock\nof g1.1\n")),
            None,
            Fault.PROVIDER,
            "one: no free stock; of g1.1",
        ),
        pytest.param(
            1,
            "",
            run_with(Diagnostic(PROVIDER, "plugin [gpuplatform] did not begin responding\n")),
            None,
            Fault.PROVIDER,
            "plugin [gpuplatform] did not begin responding",
        ),
        pytest.param(8, "error: update cancelled", run_with(), None, Fault.CANCELLED, "update cancelled"),
        pytest.param(
            1,
            'error: unable to open state directory "file:///state": /state is not a directory',
            run_with(),
            None,
            Fault.BACKEND,
            'unable to open state directory "file:///state": /state is not a directory',
        ),
        pytest.param(
            1,
            'error: read ".pulumi/meta.yaml": blob (code=Unknown): connection refused',
            run_with(),
            None,
            Fault.BACKEND,
            'read ".pulumi/meta.yaml": blob (code=Unknown): connection refused',
        ),
        pytest.param(
            1,
            "error: getting stack configuration: get stack secrets manager: incorrect passphrase",
            run_with(),
            None,
            Fault.BACKEND,
            "getting stack configuration: get stack secrets manager: incorrect passphrase",
        ),
        pytest.param(255, "error: something new", run_with(), None, Fault.OTHER, "something new"),
        pytest.param(1, "", run_with(), None, Fault.OTHER, "the Pulumi CLI ended with 1"),
        pytest.param(-9, "", run_with(), None, Fault.OTHER, "the Pulumi CLI was ended by SIGKILL"),
    ],
)
def test_a_failure_has_a_name_and_one_readable_line(
    code: int, stderr: str, run: Run, error: Exception | None, fault: Fault, message: str
) -> None:
    failure = build_failure(CommandResult("", stderr, code), run, error)

    assert (failure.fault, failure.message) == (fault, message)
    assert failure.exit_code == (code if code >= 0 else None)
    assert str(failure) == message


def test_an_asynchronous_part_of_the_program_that_fails_is_the_programs_failure() -> None:
    said = "python inline source runtime error: division by zero\nTraceback (most recent call last):\n  File ..."
    result = CommandResult(f"error: {said}", "", 1)

    failure = build_failure(result, run_with(Diagnostic("", said)), None)

    assert (failure.fault, failure.message) == (Fault.PROGRAM, "division by zero")


def test_a_message_has_no_colours_and_no_secrets_and_an_end() -> None:
    assert tidy("\x1b[31mrefused\x1b[0m: hunter2hunter2 and hunter2", {"hunter2", "hunter2hunter2"}) == (
        "refused: [secret] and [secret]"
    )
    assert len(tidy("x" * 10_000)) == LONGEST_MESSAGE + 1
