"""The runner: one stack, one call, as few CLI processes as Pulumi needs."""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import PreviewResult, StackAddress
from gpu_platform.process import pass_point
from providers.cluster.resources import attachment
from stacks.runner.backend import (
    StackFiles,
    build_absolute_url,
    build_root_url,
    build_shard_url,
    ensure_salt,
    find_directory,
    list_files,
    shard_of,
    write_file,
)
from stacks.runner.cli import PulumiProcesses
from stacks.runner.launch import PID_FILES
from stacks.runner.locks import find_nameless, remove_dead_locks, remove_free_pid_files
from stacks.runner.programs import AsyncioLogLevel, ObservedProgram, quiet_lost_connections
from stacks.runner.results import Fault, RunnerStoppedError, StackFailedError
from stacks.runner.workspace import Workspace, ask_cli
from stacks.settings import StackWorkerSettings, choose_backend, read_passphrase

Program = Callable[[], None]

UNREADABLE = re.compile(r"JSON input|invalid character|json: ")
"""How the CLI complains about a file that should be JSON, without naming it."""

ENVIRONMENT = {
    "PULUMI_SKIP_UPDATE_CHECK": "true",
    "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    # State is saved once, at the end. A killed run leaves the state as it was, and the provider adopts what it made.
    "PULUMI_SKIP_CHECKPOINTS": "true",
    # Without it every CLI call lists all stacks, to warn of an old layout.
    "PULUMI_DIY_BACKEND_NO_LEGACY_WARNING": "true",
    "PULUMI_DIY_BACKEND_GZIP": "true",
    "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
    # Every CLI call writes a log file, and first looks at all that are there.
    "PULUMI_LOG_ROTATION_MAX_AGE_DAYS": "1",
    "PULUMI_LOG_ROTATION_MAX_TOTAL_MB": "20",
    # The CLI lives for half a second: to collect less garbage saves a tenth of its time, and costs 5 MB.
    "GOGC": "400",
}


@dataclass(frozen=True)
class RunnerSettings:
    backend_url: str
    """Any that Pulumi knows. Stacks are spread over 256 roots below it."""

    work_directory: Path
    """Outside of any git checkout: each update would look for the commit."""

    passphrase: str = field(repr=False)
    pulumi: Path | None = None
    """The CLI; None: the one on PATH."""

    up_timeout: float = 120.0
    """Seconds for one CLI process."""

    grace: float = 10.0
    """Seconds between interrupting and killing it."""

    @property
    def longest_run(self) -> float:
        """Seconds after which no CLI process is left."""
        return self.up_timeout + self.grace


@dataclass(frozen=True)
class UpResult:
    outputs: dict[str, Any]
    resources: int
    """What the program declared and is there now."""

    changes: dict[str, int]
    """Resources by operation, those that stay the same included."""


class StackRunner:
    def __init__(self, settings: RunnerSettings, provider_port: int) -> None:
        self._work_directory = settings.work_directory.absolute()
        self._backend_url = build_absolute_url(settings.backend_url)
        # Made absolute: the CLI works in another directory than we do.
        pulumi = settings.pulumi.absolute() if settings.pulumi else None
        self._processes = PulumiProcesses(pulumi, settings.up_timeout, settings.grace)
        self._home = self._work_directory / "pulumi-home"
        self._home.mkdir(parents=True, exist_ok=True)
        self._salt = ensure_salt(self._work_directory / "encryption-salt", settings.passphrase)
        self._environment = {
            **ENVIRONMENT,
            "PULUMI_CONFIG_PASSPHRASE": settings.passphrase,
            **attachment(provider_port),
        }
        self._backend_directory = find_directory(self._backend_url)
        self._backend_mark = self._work_directory / "backend"
        """Says which backend was there once, also to the next process."""

        self._backend_was_there = self._backend_mark.exists() and self._backend_mark.read_text() == self._backend_url
        self._recorded: set[StackAddress] = set()
        self._log_level = AsyncioLogLevel()
        quiet_lost_connections()

    def record(self, address: StackAddress, program: Program, *, refresh: bool = False) -> UpResult:
        """Two processes for a new stack, one for any other. `refresh` looks at the cluster instead of the state."""
        files = self._open(address)
        workspace = self._workspace(address, files=files)
        observed = self._observe(program)
        with self._ended_cleanly(files, workspace):
            workspace.prepare(self._salt)
            if not self._is_there(address, files):
                workspace.initialise()
                pass_point("runner.init-done")
            # Forgotten until it has succeeded: somebody may have removed the stack, and the next call makes it again.
            self._recorded.discard(address)
            try:
                with files.keeping_what_it_says() if files and refresh else nullcontext():
                    run = workspace.update(observed, refresh=refresh)
            finally:
                if files:
                    files.prune_history()
                    remove_free_pid_files(files)
        self._recorded.add(address)
        pass_point("runner.up-done")
        return UpResult(observed.outputs, run.resources, run.changes)

    def remove(self, address: StackAddress) -> None:
        """Forgets the stack, and touches nothing of what it recorded: that is gone by now, or is somebody else's. One
        that is not there is fine."""
        files = self._open(address)
        workspace = self._workspace(address, files=files)
        with self._ended_cleanly(files, workspace):
            if files is None or files.find_state():
                workspace.prepare(self._salt)
                try:
                    workspace.remove()
                    pass_point("runner.stack-removed")
                except StackFailedError as error:
                    if error.fault is not Fault.NOT_FOUND:
                        raise
        self._recorded.discard(address)
        if files:
            # Of a `stack rm` that was killed with nothing left to do but this.
            remove_dead_locks(files, lease_expired=False)
            files.remove_remains()
        shutil.rmtree(workspace.directory, ignore_errors=True)

    def forget(self, address: StackAddress) -> None:
        """Somebody else removed the stack: what is left of it here goes too."""
        self._recorded.discard(address)
        shutil.rmtree(self._workspace(address).directory, ignore_errors=True)

    def preview(self, address: StackAddress, program: Program) -> PreviewResult:
        """What `record` with `refresh` would do now. Takes no lock and writes nothing but scratch files."""
        files = self._open(address)
        with tempfile.TemporaryDirectory(dir=self._work_directory, prefix="preview-") as name:
            scratch = Path(name)
            workspace = self._workspace(address, scratch / "work")
            workspace.prepare(self._salt)
            if files is None or files.find_state():
                try:
                    return workspace.preview(self._observe(program))
                except StackFailedError as error:
                    if error.fault is not Fault.NOT_FOUND:
                        raise
            # The CLI previews stacks that exist: an empty one, elsewhere, stands in for it.
            (scratch / "state").mkdir()
            workspace = self._workspace(address, scratch / "work", f"file://{scratch / 'state'}")
            workspace.initialise()
            return workspace.preview(self._observe(program))

    def audit(self, address: StackAddress) -> bool:
        """Whether the stack is there and says what is there. Takes no lock and writes nothing but scratch files."""
        files = self._open(address)
        if files is not None and files.find_state() is None:
            return False
        with tempfile.TemporaryDirectory(dir=self._work_directory, prefix="audit-") as name:
            workspace = self._workspace(address, Path(name))
            workspace.prepare(self._salt)
            try:
                is_same = workspace.audit()
                # Nothing differs from a state that says nothing.
                return is_same and (files is None or files.says_something())
            except StackFailedError as error:
                if error.fault is not Fault.NOT_FOUND:
                    raise
                return False

    def exists(self, address: StackAddress) -> bool:
        files = self._open(address)
        return files.find_state() is not None if files else self.read_state(address) is not None

    def read_state(self, address: StackAddress) -> Json | None:
        """The checkpoint as Pulumi keeps it: `{version, checkpoint: {latest: {resources, …}}}`, secrets encrypted.

        Costs a process where the backend is not a directory.
        """
        files = self._open(address)
        if files:
            try:
                return files.read_state()
            except (OSError, ValueError, EOFError) as error:
                raise StackFailedError(
                    Fault.BACKEND, f"the state of {address.stack} cannot be read: {error}"
                ) from error
        workspace = self._workspace(address)
        workspace.prepare(self._salt)
        exported = workspace.export()
        return exported and {"version": exported["version"], "checkpoint": {"latest": exported["deployment"]}}

    def list_root(self, shard: str) -> tuple[StackAddress, ...]:
        """The stacks of one of the 256 roots. Costs a process where the backend is not a directory.

        A backend that is not there is an error: to find no stacks in it would be to restore nothing, and be content.
        """
        self._processes.refuse_if_stopped()
        if self._backend_directory is None:
            environment = {**self._environment, "PULUMI_BACKEND_URL": build_shard_url(self._backend_url, shard)}
            return tuple(
                ask_cli(self._processes, self._work_directory, {**environment, "PULUMI_HOME": str(self._home)})
            )
        if not self._backend_directory.is_dir():
            raise StackFailedError(Fault.BACKEND, f"there is no directory {self._backend_directory}")
        return tuple(list_files(self._backend_directory / shard))

    def use_salt(self, salt: str) -> None:
        """That of the stacks which are there already: with another one each process would derive two keys, and
        re-encrypt what it read."""
        self._salt = salt

    def heal_lock(self, address: StackAddress, *, lease_expired: bool) -> bool:
        """Whether a lock, or what is left of one, was removed and the stack is free now. A live holder's lock is never
        touched.

        `lease_expired` says that the holder's lease ran out, and the longest possible run after it: the only proof
        there is for a holder on another host.
        """
        files = self._open(address)
        if files:
            return remove_dead_locks(files, lease_expired=lease_expired)
        if not lease_expired:
            return False
        workspace = self._workspace(address)
        workspace.prepare(self._salt)
        try:
            workspace.cancel_update()
        except StackFailedError as error:
            if error.fault is not Fault.NOT_FOUND:
                raise
            return False
        return True

    def interrupt(self, address: StackAddress) -> None:
        """Ends a `record` or `remove` of this stack that is under way: it fails as CANCELLED. Does not wait."""
        self._processes.interrupt(str(self._workspace(address).directory))

    def stop(self) -> None:
        """Interrupts what runs, and kills what does not end within the grace. Later calls raise."""
        self._processes.stop()

    def _observe(self, program: Program) -> ObservedProgram:
        self._log_level.remember()
        return ObservedProgram(program, self._log_level)

    def _workspace(
        self,
        address: StackAddress,
        directory: Path | None = None,
        url: str | None = None,
        files: StackFiles | None = None,
    ) -> Workspace:
        """With `files` for processes that lock the stack, which keep pid files there."""
        parent = self._work_directory / "stacks" / shard_of(address.stack)
        url = url or build_root_url(self._backend_url, address.stack)
        return Workspace(
            address=address,
            directory=directory or parent / f"{address.project}.{address.stack}",
            home=self._home,
            environment={
                **self._environment,
                "PULUMI_BACKEND_URL": url,
                **({PID_FILES: str(files.pids)} if files else {}),
            },
            processes=self._processes,
        )

    def _open(self, address: StackAddress) -> StackFiles | None:
        """The stack's files; None where the backend is not a directory.

        A backend that was there and is gone has to be an error: to find no stacks in it would be to forget them all.
        """
        self._processes.refuse_if_stopped()
        if self._backend_directory is None:
            return None
        try:
            if not self._backend_was_there:
                self._backend_directory.mkdir(parents=True, exist_ok=True)
            root = self._backend_directory / shard_of(address.stack)
            root.mkdir(exist_ok=True)
        except OSError as error:
            raise StackFailedError(
                Fault.BACKEND, f"the backend {self._backend_directory} cannot be used: {error.strerror}"
            ) from error
        if not self._backend_was_there:
            write_file(self._backend_mark, self._backend_url)
        self._backend_was_there = True
        return StackFiles(root, address)

    def _is_there(self, address: StackAddress, files: StackFiles | None) -> bool:
        return files.find_state() is not None if files else address in self._recorded

    @contextmanager
    def _ended_cleanly(self, files: StackFiles | None, workspace: Workspace) -> Iterator[None]:
        """A process that we killed ourselves leaves a lock, and there is no better proof than having killed it."""
        try:
            with self._processes.interruptible(str(workspace.directory)):
                yield
        except (RunnerStoppedError, StackFailedError) as error:
            is_ended = isinstance(error, RunnerStoppedError) or error.fault in {Fault.TIMEOUT, Fault.CANCELLED}
            if files and is_ended:
                remove_dead_locks(files, lease_expired=False)
            if files and isinstance(error, StackFailedError) and UNREADABLE.search(error.message):
                _refuse_nameless(files, error)
            raise


def _refuse_nameless(files: StackFiles, error: StackFailedError) -> None:
    """The CLI does not say that a stack is locked by a file which it cannot read, only that it cannot."""
    if (path := find_nameless(files.locks)) is not None:
        message = f"locked by {path}, which names no process: {error.message}"
        raise StackFailedError(Fault.LOCKED, message, error.exit_code) from error


def build_runner_settings(settings: StackWorkerSettings, environment: Mapping[str, str]) -> RunnerSettings:
    return RunnerSettings(
        backend_url=choose_backend(settings, environment),
        work_directory=settings.state_directory.resolve(),
        passphrase=read_passphrase(settings, environment),
        pulumi=settings.pulumi,
        up_timeout=settings.up_timeout_seconds,
    )
