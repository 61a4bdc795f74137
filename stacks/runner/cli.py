"""The Pulumi CLI as child processes that can be counted, interrupted and waited for, and that die with us."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path

from pulumi import automation
from semver import VersionInfo

from stacks.runner import launch
from stacks.runner.results import Fault, RunnerStoppedError, StackFailedError, UnfitPulumiError

OLDEST_VERSION = VersionInfo(3, 238, 0)
"""The first with `--skip-plugin-pre-install`."""

VERSION_SECONDS = 30
"""`pulumi version` takes 0.2 s; a machine that needs this long is of no use."""

INHERITED = frozenset({"PULUMI_ACCESS_TOKEN", "PULUMI_OPTION_TRACING"})
"""Of the caller's PULUMI_ variables only these: another backend, stack or passphrase must not slip in."""

USER = "gpu-platform"
"""Written into locks and history. The CLI refuses to run without USER and HOME where the UID has no passwd entry, as in
a container with a number for its user."""


class Ending(Enum):
    """How a process came to its end."""

    BY_ITSELF = auto()
    TIMEOUT = auto()
    INTERRUPTED = auto()


class ProcessFailedError(automation.CommandError):
    """The SDK's own error keeps a text only; the exit code and the cause are lost in it."""

    def __init__(self, result: automation.CommandResult, ending: Ending) -> None:
        super().__init__(result)
        self.result = result
        self.ending = ending


class PulumiProcesses(automation.PulumiCommand):
    """All CLI processes of one runner. The parent's constructor is not used: it knows no path, only roots."""

    def __init__(self, pulumi: Path | None, timeout: float, grace: float) -> None:
        self.command = str(pulumi) if pulumi else "pulumi"
        self.version = read_version(self.command)
        self.timeout = timeout
        self._grace = grace
        self._lock = threading.Lock()
        self._running: dict[subprocess.Popen[str], str] = {}
        """With the directory that each works in."""

        self._interruptible: set[str] = set()
        self._interrupted: set[str] = set()
        self._stopped = False

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: automation.OnOutput | None = None,
        on_error: automation.OnOutput | None = None,
    ) -> automation.CommandResult:
        process = self._start(["--non-interactive", *args], cwd, additional_env)
        try:
            stdout, stderr, ending = self._wait(process, cwd)
        finally:
            with self._lock:
                self._running.pop(process)
        for text, callback in ((stdout, on_output), (stderr, on_error)):
            if callback:
                for line in text.splitlines():
                    callback(line)
        result = automation.CommandResult(stdout, stderr, process.returncode)
        if process.returncode != 0:
            raise ProcessFailedError(result, ending)
        return result

    @contextmanager
    def interruptible(self, cwd: str) -> Iterator[None]:
        """Several processes for one purpose: an interrupt ends the one that runs, and no other begins."""
        with self._lock:
            self._interruptible.add(cwd)
        try:
            yield
        finally:
            with self._lock:
                self._interruptible.discard(cwd)
                self._interrupted.discard(cwd)

    def interrupt(self, cwd: str) -> None:
        """Does not wait. What does not end within the grace is killed."""
        with self._lock:
            running = [process for process, directory in self._running.items() if directory == cwd]
            self._interrupted.update(self._interruptible & {cwd})
        for process in running:
            signal_group(process, signal.SIGINT)
            killing = threading.Timer(self._grace, signal_group, (process, signal.SIGKILL))
            killing.daemon = True
            killing.start()

    def stop(self) -> None:
        """Interrupts what runs and waits for it; what does not end within the grace is killed."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            signal_group(process, signal.SIGINT)
        deadline = time.monotonic() + self._grace
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in running:
            signal_group(process, signal.SIGKILL)

    def refuse_if_stopped(self) -> None:
        if self._stopped:
            raise RunnerStoppedError("the runner is stopping and starts nothing new")

    def _start(self, args: list[str], cwd: str, environment: Mapping[str, str]) -> "subprocess.Popen[str]":
        # Under the lock, so that stop() misses no process.
        with self._lock:
            self.refuse_if_stopped()
            if cwd in self._interrupted:
                raise StackFailedError(Fault.CANCELLED, "interrupted between two processes")
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), self.command, *args],
                cwd=cwd,
                env=build_environment(os.environ, environment, self.command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            self._running[process] = cwd
            return process

    def _wait(self, process: "subprocess.Popen[str]", cwd: str) -> tuple[str, str, Ending]:
        ending = Ending.BY_ITSELF
        try:
            stdout, stderr = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            ending = Ending.TIMEOUT
            stdout, stderr = self._end(process)
        except BaseException:
            # An interrupted caller must not leave a process behind that writes state.
            signal_group(process, signal.SIGKILL)
            process.wait()
            raise
        if self._stopped or cwd in self._interrupted:
            ending = Ending.INTERRUPTED
        return stdout, stderr, ending

    def _end(self, process: "subprocess.Popen[str]") -> tuple[str, str]:
        """One interrupt finishes the steps under way and saves. A second one would give them up and save that too:
        then the state says for ever that a creation is pending, where after a kill it says what it said before."""
        signal_group(process, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=self._grace)
        signal_group(process, signal.SIGKILL)
        return process.communicate()


def signal_group(process: "subprocess.Popen[str]", number: int) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def build_environment(inherited: Mapping[str, str], ours: Mapping[str, str], command: str) -> dict[str, str]:
    kept = {name: value for name, value in inherited.items() if not name.startswith("PULUMI_") or name in INHERITED}
    if Path(command).is_absolute():
        # What belongs to this CLI lies next to it.
        kept["PATH"] = os.pathsep.join([str(Path(command).parent), kept.get("PATH", os.defpath)])
    kept["USER"] = kept.get("USER") or USER
    kept["HOME"] = kept.get("HOME") or ours["PULUMI_HOME"]
    return {**kept, "PULUMI_AUTOMATION_API": "true", **ours}


def read_version(command: str) -> VersionInfo:
    try:
        said = subprocess.run(
            [command, "version"],
            check=True,
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UnfitPulumiError(f"the Pulumi CLI {command} does not start: {error}") from error
    text = said.strip().removeprefix("v")
    version = VersionInfo.parse(text) if VersionInfo.is_valid(text) else None
    if version is None or version < OLDEST_VERSION:
        raise UnfitPulumiError(f"the Pulumi CLI {command} is {text or 'unknown'}, and {OLDEST_VERSION} is needed")
    return version
