"""The Pulumi CLI as the bootstrap command runs it: under our own signals, and past the locks that a killed one left.

Pulumi's own runner leaves the CLI in our process group. Ctrl-C would reach both, and end us before the CLI has written
down what it made; SIGTERM would reach us alone, and leave it running.

Locks go on proof only: the holder ran on this machine, and is dead. A state in files (`file://`) keeps a lock as a file
beside it, with the holder's pid and host. Other backends know themselves who is alive. The CLI writes a lock as a
temporary file and renames it. One that it could not finish, because it was killed or the disk was full, names no
holder, and the CLI fails at it from then on.
"""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from pulumi import automation
from pulumi.automation.errors import create_command_error

SIGNALS = (signal.SIGINT, signal.SIGTERM)
OnOutput = Callable[[str], Any]

LOCK_URL = re.compile(r"(file://\S+): created by ")
"""In the sentence with which the CLI refuses a locked stack."""

UNREADABLE = re.compile(r"JSON input|invalid character|json: ")
"""How the CLI complains about a file that should be JSON, without naming it."""

PROCESSES = Path("/proc")
POLL_SECONDS = 0.2


class InterruptibleCommand(automation.PulumiCommand):
    def __init__(self) -> None:
        super().__init__()
        self.is_interrupted = False
        self._running: subprocess.Popen[str] | None = None

    @contextmanager
    def taking_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._interrupt) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: OnOutput | None = None,
        on_error: OnOutput | None = None,
    ) -> automation.CommandResult:
        environment = {**os.environ, **additional_env, "PULUMI_AUTOMATION_API": "true"}
        with subprocess.Popen(
            [self.command, "--non-interactive", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
            encoding="utf-8",
            start_new_session=True,
        ) as process:
            self._running = process
            readers = [_Reader(process.stdout, on_output), _Reader(process.stderr, on_error)]
            for reader in readers:
                reader.join()
            code = process.wait()
            self._running = None
        stdout, stderr = ("\n".join(reader.lines) for reader in readers)
        result = automation.CommandResult(stdout=stdout, stderr=stderr, code=code)
        if code != 0:
            raise create_command_error(result)
        return result

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """To the CLI a second one means: at once, whatever is lost."""
        self.is_interrupted = True
        if self._running is not None:
            self._running.send_signal(signal.SIGINT)


class _Reader(threading.Thread):
    def __init__(self, stream: IO[str] | None, on_line: OnOutput | None) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._stream = stream
        self._on_line = on_line
        self.start()

    def run(self) -> None:
        for line in self._stream or ():
            self.lines.append(line.rstrip())
            if self._on_line:
                self._on_line(self.lines[-1])


@dataclass(frozen=True)
class StackLock:
    file: Path
    pid: int
    host: str
    taken_at: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} since {self.taken_at} ({self.file})"


def find_locks(refusal: str) -> list[StackLock]:
    """Those that the CLI named and that are still there."""
    files = [Path(unquote(urlsplit(url).path)) for url in LOCK_URL.findall(refusal)]
    return [lock for file in files if (lock := _read_lock(file))]


def remove_dead(locks: Iterable[StackLock]) -> list[StackLock]:
    """Those that went. Each is a file of its own: whoever takes the stack meanwhile has another one."""
    dead = [lock for lock in locks if is_dead(lock)]
    for lock in dead:
        for file in (lock.file, lock.file.with_name(f"{lock.file.name}.attrs")):
            file.unlink(missing_ok=True)
    return dead


def remove_unfinished(backend_url: str, project: str, stack: str, seconds: float) -> list[Path]:
    """Those that went, because they were not finished within that time. A temporary file is no lock before it is
    renamed, and a writer whose file is gone fails before it has touched the state: two writers cannot come of it."""
    address = urlsplit(backend_url)
    if address.scheme != "file":
        return []
    root = Path(address.netloc + unquote(address.path)).expanduser()
    directory = root / ".pulumi" / "locks" / "organization" / project / stack
    found = [file for file in directory.glob("*.tmp") if _read_lock(file) is None]
    if found:
        time.sleep(seconds)
    left = [file for file in found if file.exists() and _read_lock(file) is None]
    for file in left:
        file.unlink(missing_ok=True)
    return left


def wait_for_holders(locks: Iterable[StackLock], seconds: float) -> list[StackLock]:
    """Those that are still held after that time; for holders elsewhere nobody waits. A CLI whose caller was killed
    notices and ends by itself."""
    deadline = time.monotonic() + seconds
    while held := [lock for lock in locks if lock.file.exists() and not is_dead(lock)]:
        if time.monotonic() > deadline or not all(map(is_ours, held)):
            break
        time.sleep(POLL_SECONDS)
    return held


def is_ours(lock: StackLock) -> bool:
    return lock.host == socket.gethostname()


def is_dead(lock: StackLock) -> bool:
    """A pid that belongs to another program by now counts as alive: then a person has to look."""
    return is_ours(lock) and not _runs(lock.pid)


def _runs(pid: int) -> bool:
    try:
        stat = (PROCESSES / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # The program's name stands in brackets before the state, and may contain anything.
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def _read_lock(file: Path) -> StackLock | None:
    try:
        content = json.loads(file.read_text())
        return StackLock(file, int(content["pid"]), str(content["hostname"]), str(content["timestamp"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
