"""One process group: started, read and ended without ever blocking the event loop.

The pods' workers start containers and exec probes with it. It must be used from the main thread:
`PR_SET_PDEATHSIG` fires when the thread that forked ends, not when the process does.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from gpu_platform.devcluster.child_process import dies_with_parent

READ_BYTES = 65_536
"""One read takes what a pipe holds by default."""

LAST_READ_BYTES = 1_048_576
"""Taken after the leader has ended. All of its output fits a pipe; a survivor that keeps writing is cut."""

Sink = Callable[[str, bytes], None]
"""Takes the stream's name (`stdout` or `stderr`) and what came."""


@dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str


class Child:
    """A leader in a session of its own. `on_exit` is called once, when the group is dead and all is read."""

    def __init__(self, command: Command, sink: Sink, on_exit: Callable[[int], None]) -> None:
        """Raise `OSError` or `ValueError` if the command cannot be started."""
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._on_exit = on_exit
        # The hook between fork and exec is safe because this process has one thread: no lock can be held.
        self._process = subprocess.Popen(
            command.argv,
            env=command.environment,
            cwd=command.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=dies_with_parent(),
        )
        self.pid = self._process.pid
        self.exit_code: int | None = None
        self._streams: dict[str, IO[bytes]] = {}
        for name, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._streams[name] = stream
                self._loop.add_reader(stream.fileno(), self._read, name)
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._finish)

    def signal_group(self, number: signal.Signals) -> None:
        """Does nothing once the leader has been reaped: its number may belong to somebody else then."""
        if self.exit_code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _read(self, name: str) -> bool:
        """Pass on what is there. False when nothing more can come."""
        try:
            data = os.read(self._streams[name].fileno(), READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close(name)
            return False
        self._sink(name, data)
        return True

    def _close(self, name: str) -> None:
        stream = self._streams.pop(name)
        self._loop.remove_reader(stream.fileno())
        stream.close()

    def _finish(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        # The leader is still a zombie, so its group's number cannot have been given away yet.
        self.signal_group(signal.SIGKILL)
        code = self._process.wait()
        self.exit_code = code if code >= 0 else 128 - code
        for name in tuple(self._streams):
            for _ in range(LAST_READ_BYTES // READ_BYTES):
                if not self._read(name):
                    break
            if name in self._streams:
                self._close(name)
        self._on_exit(self.exit_code)
