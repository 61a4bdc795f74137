"""Runs commands whose whole process tree ends with this process, however it ends.

Killing only the started command would leave the compilers that it started. A parent-death signal has the
same gap, and is bound to the thread that forked. So everything runs in one process group with a guard: a
shell that waits for the end of its standard input, which only this process holds open, and then kills the
group.
"""

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

GUARD = ("/bin/sh", "-c", "read _; kill -KILL 0")


class EndedError(Exception):
    """The group was ended: this run was interrupted, or another part of it failed."""


class ProcessGroup:
    """A context; leaving it ends what still runs in the group."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            GUARD,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._starting = threading.Lock()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        self._guard.wait()

    def end(self) -> None:
        """Ends everything in the group and lets nothing more start. From any thread; twice is fine."""
        with self._starting:
            self._ended.set()
            if self._guard.stdin is not None:
                self._guard.stdin.close()

    def check(self) -> None:
        """Raises EndedError when the group was ended."""
        if self._ended.is_set():
            raise EndedError

    def pause(self, seconds: float) -> None:
        """Waits, but not longer than the group lives."""
        self._ended.wait(seconds)
        self.check()

    def run(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
    ) -> int:
        """Runs the command to its end, gives its output line by line, and returns its exit code."""
        with self._starting:
            self.check()
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=self._guard.pid,
            )
        with process:
            try:
                for line in process.stdout or ():
                    on_line(line.rstrip("\n"))
            except BaseException:
                process.kill()
                raise
        self.check()
        return process.returncode
