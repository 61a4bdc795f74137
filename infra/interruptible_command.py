"""The Pulumi CLI under our own signals: one that reaches us reaches it once, and it ends what is under way.

Pulumi's own runner leaves the CLI in our process group. Ctrl-C would reach both, and end us before the CLI has written
down what it made; SIGTERM would reach us alone, and leave it running.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any

from pulumi import automation
from pulumi.automation.errors import create_command_error

SIGNALS = (signal.SIGINT, signal.SIGTERM)
OnOutput = Callable[[str], Any]


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
