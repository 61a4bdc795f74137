"""Child processes of the runner, with scripts in the CLI's place: limits, interrupts, and who dies with whom."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.runner.cli import Ending, ProcessFailedError, PulumiProcesses, build_environment
from stacks.runner.results import Fault, RunnerStoppedError, StackFailedError, UnfitPulumiError
from tests.support.processes import is_running
from tests.support.waiting import wait_until

SCRIPT = """#!/bin/sh
case "$*" in
version) echo v3.259.0 ;;
*finish*) echo out; echo err >&2; exit ${CODE:-0} ;;
*stubborn*) trap 'echo interrupted' INT; echo $$ > pid; while :; do sleep 0.05; done ;;
*wait*) echo $$ > pid; exec sleep 60 ;;
*nice*) nice; cut -d' ' -f6 /proc/$$/stat ;;
esac
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "pulumi"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


@pytest.fixture
def processes(script: Path) -> PulumiProcesses:
    return PulumiProcesses(script, timeout=30, grace=0.3)


def wait_for_pid(directory: Path) -> int:
    file = directory / "pid"
    return int(wait_until(lambda: file.read_text() if file.exists() else None))


def wait_until_dead(pid: int) -> None:
    wait_until(lambda: not is_running(pid))


@pytest.fixture
def waiting(processes: PulumiProcesses, tmp_path: Path) -> Iterator[list[BaseException]]:
    """A call that hangs in another thread, and what it raised."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            with processes.interruptible(str(tmp_path)):
                processes.run(["wait"], str(tmp_path), {})
        except (ProcessFailedError, StackFailedError) as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    yield raised
    thread.join(20)
    assert not thread.is_alive()


def test_what_a_process_says_and_its_exit_code_are_kept(processes: PulumiProcesses, tmp_path: Path) -> None:
    lines: list[str] = []
    result = processes.run(["finish"], str(tmp_path), {}, on_output=lines.append)
    with pytest.raises(ProcessFailedError) as caught:
        processes.run(["finish"], str(tmp_path), {"CODE": "7"})

    assert (result.stdout, result.stderr, result.code) == ("out\n", "err\n", 0)
    assert lines == ["out"]
    assert (caught.value.result.code, caught.value.ending) == (7, Ending.BY_ITSELF)


def test_a_process_steps_back_and_has_a_session_of_its_own(processes: PulumiProcesses, tmp_path: Path) -> None:
    niceness, session = processes.run(["nice"], str(tmp_path), {}).stdout.split()

    assert int(niceness) == min(os.nice(0) + 10, 19)
    assert int(session) != os.getsid(0)


def test_a_process_that_takes_too_long_is_interrupted(script: Path, tmp_path: Path) -> None:
    processes = PulumiProcesses(script, timeout=0.5, grace=20)

    with pytest.raises(ProcessFailedError) as caught:
        processes.run(["wait"], str(tmp_path), {})

    assert caught.value.ending is Ending.TIMEOUT
    assert caught.value.result.code == -signal.SIGINT


def test_a_process_that_ignores_the_interrupt_is_killed_with_all_its_children(script: Path, tmp_path: Path) -> None:
    processes = PulumiProcesses(script, timeout=0.5, grace=0.3)

    with pytest.raises(ProcessFailedError) as caught:
        processes.run(["stubborn"], str(tmp_path), {})

    assert caught.value.result.code == -signal.SIGKILL
    assert "interrupted" in caught.value.result.stdout
    wait_until_dead(wait_for_pid(tmp_path))


def test_stop_ends_what_runs_and_nothing_new_begins(
    processes: PulumiProcesses, tmp_path: Path, waiting: list[BaseException]
) -> None:
    pid = wait_for_pid(tmp_path)

    processes.stop()

    wait_until_dead(pid)
    with pytest.raises(RunnerStoppedError):
        processes.run(["finish"], str(tmp_path), {})
    wait_until(lambda: waiting)
    assert isinstance(waiting[0], ProcessFailedError)
    assert waiting[0].ending is Ending.INTERRUPTED


@pytest.mark.usefixtures("waiting")
def test_an_interrupt_ends_the_work_in_one_directory(processes: PulumiProcesses, tmp_path: Path) -> None:
    pid = wait_for_pid(tmp_path)

    processes.interrupt(str(tmp_path / "other"))
    assert is_running(pid)
    processes.interrupt(str(tmp_path))

    wait_until_dead(pid)


def test_after_an_interrupt_the_next_process_of_the_same_work_does_not_begin(
    processes: PulumiProcesses, tmp_path: Path
) -> None:
    with processes.interruptible(str(tmp_path)):
        processes.interrupt(str(tmp_path))
        with pytest.raises(StackFailedError) as caught:
            processes.run(["finish"], str(tmp_path), {})

    assert caught.value.fault is Fault.CANCELLED
    assert processes.run(["finish"], str(tmp_path), {}).code == 0, "later work is not concerned"


def test_an_interrupt_of_nothing_is_forgotten(processes: PulumiProcesses, tmp_path: Path) -> None:
    processes.interrupt(str(tmp_path))

    assert processes.run(["finish"], str(tmp_path), {}).code == 0


def test_a_process_dies_with_the_one_that_started_it(script: Path, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from stacks.runner.cli import PulumiProcesses;"
        f"PulumiProcesses(Path({str(script)!r}), 60, 1).run(['wait'], {str(tmp_path)!r}, {{}})"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[4]) as parent:
        pid = wait_for_pid(tmp_path)
        parent.kill()

    wait_until_dead(pid)


def test_a_cli_that_is_missing_or_too_old_is_named(tmp_path: Path, script: Path) -> None:
    with pytest.raises(UnfitPulumiError, match="does not start"):
        PulumiProcesses(tmp_path / "none", 1, 1)
    script.write_text("#!/bin/sh\necho v3.100.0\n")
    with pytest.raises(UnfitPulumiError, match=r"is 3\.100\.0, and 3\.238\.0 is needed"):
        PulumiProcesses(script, 1, 1)


def test_no_setting_of_somebody_elses_pulumi_slips_in() -> None:
    inherited = {"PATH": "/bin", "HOME": "/root", "PULUMI_BACKEND_URL": "s3://other", "PULUMI_ACCESS_TOKEN": "t"}

    environment = build_environment(inherited, {"PULUMI_HOME": "/work"}, "/opt/pulumi/pulumi")

    assert environment == {
        "PATH": "/opt/pulumi:/bin",
        "HOME": "/root",
        "USER": "gpu-platform",
        "PULUMI_ACCESS_TOKEN": "t",
        "PULUMI_AUTOMATION_API": "true",
        "PULUMI_HOME": "/work",
    }


@pytest.mark.parametrize(
    ("inherited", "user", "home"),
    [
        ({}, "gpu-platform", "/work"),
        ({"USER": "", "HOME": ""}, "gpu-platform", "/work"),
        ({"USER": "ada", "HOME": "/home/ada"}, "ada", "/home/ada"),
    ],
    ids=["unset", "empty", "set"],
)
def test_the_cli_has_a_user_and_a_home_also_where_the_uid_has_no_name(
    inherited: dict[str, str], user: str, home: str
) -> None:
    environment = build_environment(inherited, {"PULUMI_HOME": "/work"}, "pulumi")
    assert (environment["USER"], environment["HOME"]) == (user, home)
