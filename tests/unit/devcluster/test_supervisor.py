"""The supervisor with small programs in the place of the cluster's: starts, steps, last words, and restarts."""

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpu_platform.devcluster import supervisor
from gpu_platform.devcluster.credentials import ensure_certificates
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.processes import Finished, HttpReady, ProcessSpec
from gpu_platform.devcluster.record import ClusterRecord, ClusterStatus, read_status
from gpu_platform.devcluster.supervisor import ROOM_BYTES, plan_restart

ENOUGH_SECONDS = 30
STOP = f"import os; os.kill({os.getpid()}, {int(signal.SIGTERM)})"
"""A program that ends the supervisor, which is this process."""

NEVER = HttpReady("http://127.0.0.1:1/")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDirectory:
    monkeypatch.setattr(supervisor, "RESTART_SECONDS", (0.01, 0.02))
    directory = ClusterDirectory(tmp_path)
    directory.create()
    ensure_certificates(directory.pki, datetime.now(UTC))
    return directory


def program(name: str, code: str, *after: str, step: bool = False) -> ProcessSpec:
    ready = Finished() if step else NEVER
    return ProcessSpec(name, (sys.executable, "-c", code), ready, "nowhere", after)


async def run(directory: ClusterDirectory, *specs: ProcessSpec) -> tuple[int, ClusterStatus]:
    running = supervisor.Supervisor(directory, ClusterRecord.new(), specs).run()
    return await asyncio.wait_for(running, ENOUGH_SECONDS), read_status(directory)


async def test_what_needs_a_step_starts_when_that_has_ended_well(
    directory: ClusterDirectory,
) -> None:
    said = directory.root / "said"
    first = program("bootstrap", f"import time; time.sleep(0.3); open('{said}', 'a').write('made\\n')", step=True)
    second = program("api", f"open('{said}', 'a').write('used\\n'); {STOP}", "bootstrap")
    code, status = await run(directory, first, second)

    assert (code, status.phase, status.error) == (0, "stopped", None)
    assert said.read_text().splitlines()[:2] == ["made", "used"]


async def test_a_step_that_failed_is_tried_again(directory: ClusterDirectory) -> None:
    tries = directory.root / "tries"
    flaky = f"open('{tries}', 'a').write('.'); raise SystemExit(0 if len(open('{tries}').read()) == 2 else 1)"
    code, status = await run(directory, program("bootstrap", flaky, step=True), program("api", STOP, "bootstrap"))

    assert (code, status.error) == (0, None)
    assert tries.read_text() == ".."


async def test_a_step_that_fails_again_and_again_ends_the_start_with_its_last_words(
    directory: ClusterDirectory,
) -> None:
    failing = "import sys; sys.exit('error: gpu-platform:stockPool is no setting')"
    code, status = await run(directory, program("bootstrap", failing, step=True), program("api", "", "bootstrap"))

    assert (code, status.phase) == (1, "failed")
    assert status.error == (
        f"bootstrap does not succeed; the last words in {directory.log_of('bootstrap')}:\n"
        "    error: gpu-platform:stockPool is no setting"
    )
    assert {process.name: process.state for process in status.processes} == {"bootstrap": "stopped", "api": "stopped"}


async def test_a_process_that_does_not_start_says_why_in_the_error_itself(
    directory: ClusterDirectory,
) -> None:
    directory.log_of("reconciler").write_text("words of a run of yesterday\n")
    dying = "raise SystemExit('reading settings\\nno such cluster')"
    code, status = await run(directory, program("reconciler", dying))

    assert code == 1
    assert status.error is not None
    assert status.error.startswith("reconciler does not start; ")
    assert status.error.splitlines()[1:] == ["    reading settings", "    no such cluster"]


FULL = "JetStream stream '$G > KV_invocations' write error: write 1.blk: no space left on device"
OFF = "JetStream not enabled"
RECOVERING = "JetStream stream '$G > KV_invocations' could not be found"


@pytest.mark.parametrize(
    ("health", "free_bytes", "is_restarted"),
    [
        (None, ROOM_BYTES, False),
        (RECOVERING, ROOM_BYTES, False),
        (FULL, 0, False),
        (FULL, ROOM_BYTES - 1, False),
        (FULL, ROOM_BYTES, True),
        (OFF, 0, False),
        (OFF, ROOM_BYTES, True),
    ],
)
def test_a_write_error_is_mended_by_a_restart_once_there_is_room(
    health: str | None, free_bytes: int, *, is_restarted: bool
) -> None:
    assert plan_restart(health, free_bytes) == (health if is_restarted else None)
