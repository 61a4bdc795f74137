"""What is left of a run that was interrupted, killed or drained, and how the next one goes on from there."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from gpu_platform.domain.stacks import StackAddress
from stacks.runner import Fault, RunnerStoppedError, StackFailedError, StackRunner, UpResult
from stacks.runner.locks import observe_process, parse_lock
from tests.architecture.repository import ROOT
from tests.support.fault_report import FaultReport
from tests.support.stack_runners import RunnerBench, build_program, open_bench, unit
from tests.support.waiting import eventually

ONE = unit("one")
LIMIT_SECONDS = 300

# Of a program whose CLI is killed before it has begun: the SDK forgets the loop, and the runner never saw it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    with open_bench(tmp_path) as bench:
        yield bench
    # Here, and not in the middle of another test.
    gc.collect()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def start_and_hold(bench: RunnerBench, runner: StackRunner, pool: ThreadPoolExecutor) -> "Future[UpResult]":
    """A `record` that has reached the provider and gets no answer."""
    reached = bench.shelves.hold("one")
    future = pool.submit(runner.record, ONE, build_program("one"))
    assert reached.wait(LIMIT_SECONDS), future
    return future


def list_locks(bench: RunnerBench, address: StackAddress = ONE) -> list[Path]:
    """Every file that the CLI reads as a lock."""
    return sorted(bench.files(address).locks.glob("*"))


def holder_of(lock: Path) -> int:
    found = parse_lock(lock)
    assert found is not None
    assert found.hostname == socket.gethostname()
    return found.pid


def failure_of(future: "Future[UpResult]") -> StackFailedError:
    error = future.exception(LIMIT_SECONDS)
    assert isinstance(error, StackFailedError), error
    return error


def test_a_killed_cli_leaves_a_lock_that_goes_on_proof_and_the_next_run_succeeds(
    bench: RunnerBench, pool: ThreadPoolExecutor
) -> None:
    runner = bench.build_runner()
    running = start_and_hold(bench, runner, pool)
    (lock,) = list_locks(bench)

    assert runner.heal_lock(ONE, lease_expired=False) is False
    assert runner.heal_lock(ONE, lease_expired=True) is False, "its holder lives, whatever the lease says"
    assert list_locks(bench) == [lock]
    with pytest.raises(StackFailedError) as locked:
        bench.build_runner().record(ONE, build_program("one"))
    assert locked.value.fault is Fault.LOCKED
    assert f"pid {holder_of(lock)}" in locked.value.message

    os.kill(holder_of(lock), signal.SIGKILL)
    error = failure_of(running)
    assert (error.fault, error.exit_code) == (Fault.OTHER, None)
    assert "SIGKILL" in error.message
    assert list_locks(bench) == [lock]

    assert runner.heal_lock(ONE, lease_expired=False) is True
    assert list_locks(bench) == []
    bench.shelves.let_go("one")
    assert runner.record(ONE, build_program("one")).changes == {"create": 1}
    assert list(bench.files(ONE).pids.iterdir()) == []
    state = runner.read_state(ONE)
    assert state is not None
    assert not state["checkpoint"]["latest"].get("pending_operations")


def test_a_lock_of_another_host_goes_with_the_lease_only(bench: RunnerBench) -> None:
    runner = bench.build_runner()
    runner.record(ONE, build_program("one"))
    directory = bench.files(ONE).locks
    directory.mkdir(parents=True, exist_ok=True)
    lock = {"pid": os.getpid(), "username": "x", "hostname": "elsewhere", "timestamp": "2026-11-16T10:00:00Z"}
    (directory / "11111111-1111-1111-1111-111111111111.json").write_text(json.dumps(lock))

    assert runner.heal_lock(ONE, lease_expired=False) is False
    with pytest.raises(StackFailedError) as locked:
        runner.record(ONE, build_program("one"))
    assert locked.value.fault is Fault.LOCKED
    assert "elsewhere" in locked.value.message

    assert runner.heal_lock(ONE, lease_expired=True) is True
    assert runner.record(ONE, build_program("one")).changes == {"same": 1}


@pytest.mark.parametrize(
    ("name", "content", "lease_expired"),
    [
        pytest.param("6f1e.json.18a0c5.tmp", "", False, id="empty"),
        pytest.param("6f1e.json.18a0c5.tmp", '{"pid": 4', False, id="torn", marks=pytest.mark.faults),
        pytest.param("6f1e.json.18a0c5.tmp", None, False, id="whole", marks=pytest.mark.faults),
        pytest.param("6f1e.json", "", True, id="empty-lock", marks=pytest.mark.faults),
    ],
)
def test_what_is_left_of_a_lock_goes_on_proof_and_the_next_run_succeeds(
    bench: RunnerBench,
    pool: ThreadPoolExecutor,
    faults: FaultReport,
    name: str,
    content: str | None,
    lease_expired: bool,
) -> None:
    """The CLI writes a temporary file and renames it: a kill or a full disk in between leaves that file, and the CLI
    itself reads it as a lock from then on."""
    runner = bench.build_runner()
    running = start_and_hold(bench, runner, pool)
    (lock,) = list_locks(bench)
    whole = lock.read_text()
    leftover = lock.with_name(name)
    leftover.write_text(whole if content is None else content)

    assert runner.heal_lock(ONE, lease_expired=True) is False
    assert list_locks(bench) == sorted([lock, leftover]), "a process of the stack runs"
    pid = holder_of(lock)
    os.kill(pid, signal.SIGKILL)
    failure_of(running)
    bench.shelves.let_go("one")
    lock.unlink()

    for call in (lambda: runner.record(ONE, build_program("one")), lambda: runner.remove(ONE)):
        with pytest.raises(StackFailedError) as locked:
            call()
        assert locked.value.fault is Fault.LOCKED
        assert (f"pid {pid}" if content is None else name) in locked.value.message
    faults.hit(f"left in the lock directory: {name}")

    assert runner.heal_lock(ONE, lease_expired=False) is not lease_expired
    assert runner.heal_lock(ONE, lease_expired=True) is lease_expired
    assert list_locks(bench) == []
    assert runner.record(ONE, build_program("one")).changes == {"create": 1}
    faults.held("the next run succeeds")


def test_a_pid_that_another_process_has_at_once_keeps_no_lock(bench: RunnerBench, pool: ThreadPoolExecutor) -> None:
    """As in a container that is restarted, where pids begin at 1 again and the host name stays."""
    runner = bench.build_runner()
    running = start_and_hold(bench, runner, pool)
    (lock,) = list_locks(bench)
    os.kill(holder_of(lock), signal.SIGKILL)
    failure_of(running)
    bench.shelves.let_go("one")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as another:
        began = observe_process(another.pid)
        assert began is not None
        [pid_file] = bench.files(ONE).pids.iterdir()
        pid_file.rename(pid_file.with_name(pid_file.name.replace(str(holder_of(lock)), str(another.pid))))
        content = json.loads(lock.read_text())
        lock.write_text(json.dumps({**content, "pid": another.pid, "timestamp": began.started_at.isoformat()}))

        with pytest.raises(StackFailedError) as locked:
            runner.record(ONE, build_program("one"))
        assert f"pid {another.pid}" in locked.value.message
        assert runner.heal_lock(ONE, lease_expired=False) is True
        assert runner.record(ONE, build_program("one")).changes == {"create": 1}
        another.communicate(b"\n")


def test_a_run_that_takes_too_long_ends_and_leaves_neither_process_nor_lock(bench: RunnerBench) -> None:
    bench.shelves.hold("one")

    with pytest.raises(StackFailedError) as caught:
        bench.build_runner(up_timeout=5.0, grace=0.5).record(ONE, build_program("one"))

    assert caught.value.fault is Fault.TIMEOUT
    assert caught.value.message == "the Pulumi CLI did not end within 5 s"
    assert [observe_process(pid) for pid in bench.list_pids()] == [None] * len(bench.list_pids())
    assert list_locks(bench) == []
    bench.shelves.let_go("one")
    assert bench.build_runner().record(ONE, build_program("one")).changes == {"create": 1}


def test_an_interrupt_lets_the_step_under_way_finish(bench: RunnerBench, pool: ThreadPoolExecutor) -> None:
    runner = bench.build_runner(grace=30)
    running = start_and_hold(bench, runner, pool)

    runner.interrupt(unit("another"))
    runner.interrupt(ONE)
    bench.shelves.let_go("one")

    assert failure_of(running).fault is Fault.CANCELLED
    assert list_locks(bench) == []
    assert runner.record(ONE, build_program("one")).changes == {"same": 1}, "the step was finished and saved"


def test_stop_drains_what_runs(bench: RunnerBench, pool: ThreadPoolExecutor) -> None:
    runner = bench.build_runner(grace=0.5)
    running = start_and_hold(bench, runner, pool)
    pid = holder_of(list_locks(bench)[0])
    stopping = threading.Thread(target=runner.stop)
    stopping.start()

    assert isinstance(running.exception(LIMIT_SECONDS), RunnerStoppedError), "no failure of the stack's"
    stopping.join(LIMIT_SECONDS)

    assert not stopping.is_alive()
    assert observe_process(pid) is None
    assert list_locks(bench) == []


async def test_a_runner_that_is_killed_takes_its_cli_along(bench: RunnerBench) -> None:
    program = f"""
from pathlib import Path
from tests.support.stack_runners import RunnerBench, build_program, unit
from tests.support.shelf_provider import Shelves
bench = RunnerBench(Path({str(bench.directory)!r}), {bench.port}, Shelves(), Path({str(bench.pulumi)!r}))
bench.build_runner().record(unit("one"), build_program("one"))
"""
    reached = bench.shelves.hold("one")
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as worker:
        assert reached.wait(LIMIT_SECONDS)
        (lock,) = list_locks(bench)
        worker.kill()
    bench.shelves.let_go("one")

    pid = holder_of(lock)

    async def is_gone() -> bool:
        return observe_process(pid) is None

    await eventually(is_gone)
    runner = bench.build_runner()
    assert runner.heal_lock(ONE, lease_expired=False) is True
    assert runner.record(ONE, build_program("one")).resources == 1
