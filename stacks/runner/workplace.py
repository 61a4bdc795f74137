"""One stack at one backend: each method is one CLI process, and every failure is a `StackFailedError`."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulumi import automation
from pulumi.automation.errors import create_command_error

from gpu_platform.domain.stacks import StackAddress
from stacks.runner.cli import Ending, ProcessFailedError, PulumiProcesses
from stacks.runner.events import Run, build_run, read_event_log
from stacks.runner.files import write_file
from stacks.runner.previews import Preview, build_preview
from stacks.runner.programs import ObservedProgram
from stacks.runner.results import Fault, StackFailedError, build_failure
from stacks.runner.workspace import SingleProcessStack, StackWorkspace

Json = dict[str, Any]

PARALLEL = 8
"""Resource operations at once, and a quarter of the threads that the SDK keeps for a program."""

UNEXPECTED_CHANGES = "no changes were expected"
"""The CLI's words; it has no exit code for them."""

ARGUMENTS = ("--skip-plugin-pre-install", "--suppress-outputs", "--suppress-progress")


@dataclass(frozen=True)
class Workplace:
    address: StackAddress
    directory: Path
    home: Path
    environment: dict[str, str]
    processes: PulumiProcesses

    def prepare(self, encryption_salt: str) -> None:
        """The files that the CLI wants to find. Without the salt each process would invent one of its own."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_file(self.directory / "Pulumi.yaml", f"name: {self.address.project}\nruntime: python\n")
        write_file(self.directory / f"Pulumi.{self.address.stack}.yaml", f"encryptionsalt: {encryption_salt}\n")

    def initialise(self) -> None:
        """One that is there already is fine. Without `--no-select` each would leave a file behind in Pulumi's home."""
        with self._explained(None, []):
            try:
                self._cli("stack", "init", self.address.stack, "--no-select")
            except ProcessFailedError as error:
                if not isinstance(create_command_error(error.result), automation.StackAlreadyExistsError):
                    raise

    def update(self, program: ObservedProgram, *, refresh: bool) -> Run:
        with self._event_log() as log, self._explained(program, log):
            self._stack("--event-log", str(log)).up(program=program, refresh=refresh, parallel=PARALLEL, color="never")
            return build_run(read_event_log(log))

    def preview(self, program: ObservedProgram) -> Preview:
        """Refreshes what it compares with, in memory: a difference in the cluster shows, and nothing is written."""
        events: list[automation.EngineEvent] = []
        with self._explained(program, events):
            self._stack().preview(
                program=program, refresh=True, parallel=PARALLEL, color="never", on_event=events.append
            )
        return build_preview(events)

    def audit(self) -> bool:
        """Whether what the stack says is what is there. Runs no program, takes no lock and writes nothing."""
        arguments = ("refresh", "--preview-only", "--expect-no-changes", *ARGUMENTS, "--stack", self.address.stack)
        with self._explained(None, []):
            try:
                self._cli(*arguments)
            except ProcessFailedError as error:
                if UNEXPECTED_CHANGES not in error.result.stderr + error.result.stdout:
                    raise
                return False
        return True

    def remove(self) -> None:
        """Also with resources in it: `destroy` would delete by name and uid what may have been made again since."""
        self._run("stack", "rm", "--yes", "--force", "--remove-backups", "--stack", self.address.stack)

    def cancel_update(self) -> None:
        """Removes every lock of the stack, whoever holds it."""
        self._run("cancel", "--yes", "--stack", self.address.stack)

    def export(self) -> Json | None:
        try:
            exported: Json = json.loads(self._run("stack", "export", "--stack", self.address.stack).stdout)
        except StackFailedError as error:
            if error.fault is Fault.NOT_FOUND:
                return None
            raise
        return exported

    def _run(self, *arguments: str) -> automation.CommandResult:
        with self._explained(None, []):
            return self._cli(*arguments)

    def _cli(self, *arguments: str) -> automation.CommandResult:
        environment = {**self.environment, "PULUMI_HOME": str(self.home)}
        return self.processes.run([*arguments, "--color", "never"], str(self.directory), environment)

    def _stack(self, *arguments: str) -> SingleProcessStack:
        workspace = StackWorkspace(self.directory, self.home, self.environment, self.processes, *ARGUMENTS, *arguments)
        return SingleProcessStack(self.address.stack, workspace)

    @contextmanager
    def _event_log(self) -> Iterator[Path]:
        path = self.directory / f"events-{secrets.token_hex(4)}.json"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def _explained(
        self, program: ObservedProgram | None, events: Path | list[automation.EngineEvent]
    ) -> Iterator[None]:
        try:
            yield
        except ProcessFailedError as error:
            if error.ending is Ending.TIMEOUT:
                limit = self.processes.timeout
                raise StackFailedError(Fault.TIMEOUT, f"the Pulumi CLI did not end within {limit:g} s") from None
            if error.ending is Ending.INTERRUPTED:
                # While draining it is no failure of the stack's.
                self.processes.refuse_if_stopped()
                raise StackFailedError(Fault.CANCELLED, "interrupted on request") from None
            told = read_event_log(events) if isinstance(events, Path) else events
            program_error, hidden = (program.error, program.secrets) if program else (None, set())
            passphrase = self.environment["PULUMI_CONFIG_PASSPHRASE"]
            failure = build_failure(error.result, build_run(told), program_error, {*hidden, passphrase})
            # Not chained: what the CLI printed may hold what the message must not.
            raise failure from None
        finally:
            if program:
                program.finish()
