"""Which locks on a stack may be taken away, and which may not."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from infra.pulumi_cli import find_locks, is_dead, remove_dead, remove_unfinished, wait_for_holders

HERE = socket.gethostname()


def write_lock(directory: Path, name: str, pid: int, host: str = HERE) -> Path:
    """As Pulumi does, with the attributes that its storage keeps beside every file."""
    file = directory / f"{name}.json"
    holder = {"pid": pid, "username": "ada", "hostname": host, "timestamp": "2030-01-01T00:00:00Z"}
    file.write_text(json.dumps(holder))
    file.with_name(f"{file.name}.attrs").write_text("{}")
    return file


def refusal(*files: Path) -> str:
    """The CLI's own words."""
    lines = [f"  file://{file}: created by ada@{HERE} (pid 1) at 2030-01-01T00:00:00Z" for file in files]
    return "\n".join((f"error: the stack is currently locked by {len(files)} lock(s). Either wait …", *lines))


def ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_the_lock_of_a_process_that_ended_on_this_machine_is_removed(tmp_path: Path) -> None:
    file = write_lock(tmp_path, "dead", ended_pid())

    [removed] = remove_dead(find_locks(refusal(file)))

    assert removed.file == file
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_live_process_is_never_removed(tmp_path: Path) -> None:
    file = write_lock(tmp_path, "live", os.getpid())

    assert remove_dead(find_locks(refusal(file))) == []
    assert file.exists()


def test_nobody_judges_a_process_of_another_machine(tmp_path: Path) -> None:
    file = write_lock(tmp_path, "elsewhere", ended_pid(), host="elsewhere")
    locks = find_locks(refusal(file))

    assert remove_dead(locks) == []
    assert wait_for_holders(locks, seconds=60) == locks
    assert file.exists()


def test_a_killed_process_that_nobody_has_reaped_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        [lock] = find_locks(refusal(write_lock(tmp_path, "zombie", process.pid)))

        assert is_dead(lock)


def test_only_locks_that_the_cli_named_and_that_are_still_there_are_looked_at(tmp_path: Path) -> None:
    named, unnamed = write_lock(tmp_path, "named one", 1), write_lock(tmp_path, "unnamed", 1)
    gone, torn = tmp_path / "gone.json", tmp_path / "torn.json"
    torn.write_text("{")

    locks = find_locks(refusal(Path(str(named).replace(" ", "%20")), gone, torn))

    assert [lock.file for lock in locks] == [named]
    assert unnamed.exists()


def test_other_backends_are_left_to_themselves() -> None:
    assert find_locks("  s3://bucket/.pulumi/locks/a.json: created by ada@host (pid 1) at 2030-01-01T00:00:00Z") == []


def test_a_live_holder_is_waited_for(tmp_path: Path) -> None:
    file = write_lock(tmp_path, "live", os.getpid())
    locks = find_locks(refusal(file))
    release = threading.Timer(0.1, file.unlink)
    release.start()

    assert wait_for_holders(locks, seconds=30) == []
    release.join()


def test_the_wait_has_an_end(tmp_path: Path) -> None:
    locks = find_locks(refusal(write_lock(tmp_path, "live", os.getpid())))

    assert wait_for_holders(locks, seconds=0) == locks


def test_an_unfinished_lock_is_removed_and_nothing_else(tmp_path: Path) -> None:
    directory = tmp_path / "a state" / ".pulumi" / "locks" / "organization" / "gpu-platform" / "dev"
    directory.mkdir(parents=True)
    empty, torn = directory / "a.json.18a0.tmp", directory / "b.json.18a0.tmp"
    empty.touch()
    torn.write_text('{"pid": 4')
    whole = write_lock(directory, "c", ended_pid()).rename(directory / "c.json.18a0.tmp")
    lock = write_lock(directory, "d", ended_pid())

    url = f"file://{tmp_path}/a%20state?metadata=skip"
    assert sorted(remove_unfinished(url, "gpu-platform", "dev", seconds=0)) == [empty, torn]
    assert not empty.exists()
    assert not torn.exists()
    assert whole.exists()
    assert lock.exists()
    assert remove_unfinished(url, "gpu-platform", "dev", seconds=0) == []
    assert remove_unfinished("s3://bucket", "gpu-platform", "dev", seconds=0) == []
