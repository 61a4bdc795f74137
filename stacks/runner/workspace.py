"""One stack at one backend: each method is one CLI process, and every failure is a `StackFailedError`.

Built on the Automation API's stack and workspace, without the processes that they start on their own account.
"""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pulumi import automation
from pulumi.automation.errors import create_command_error

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import PreviewResult, StackAddress, parse_address
from stacks.runner.backend import write_file
from stacks.runner.cli import Ending, ProcessFailedError, PulumiProcesses
from stacks.runner.programs import ObservedProgram
from stacks.runner.results import (
    Fault,
    Run,
    StackFailedError,
    build_failure,
    build_preview,
    build_run,
    read_event_log,
)

PARALLEL = 8
"""Resource operations at once, and a quarter of the threads that the SDK keeps for a program."""

UNEXPECTED_CHANGES = "no changes were expected"
"""The CLI's words; it has no exit code for them."""

ARGUMENTS = ("--skip-plugin-pre-install", "--suppress-outputs", "--suppress-progress")


class SingleProcessStack(automation.Stack):
    """`up` and `preview` start one process each; the parent adds up to four."""

    def __init__(self, name: str, workspace: "Workspace") -> None:
        # The parent's constructor would run `stack init` or `stack select`.
        self.name = name
        self.workspace = workspace

    def __repr__(self) -> str:
        return f"SingleProcessStack({self.name!r})"

    def outputs(self) -> automation.OutputMap:
        """The parent asks the CLI twice. The program that ran in this process knows them."""
        return {}

    def info(self, show_secrets: bool = True) -> automation.UpdateSummary:  # noqa: ARG002 -- the parent's signature
        """The parent asks the CLI for the history. It insists on an answer, and nobody reads it."""
        return automation.UpdateSummary(
            kind="update", start_time=datetime.now(UTC), message="", environment={}, config={}, result="succeeded"
        )


class Workspace(automation.LocalWorkspace):
    """The directory of one stack, and its CLI."""

    def __init__(
        self,
        address: StackAddress,
        directory: Path,
        home: Path,
        environment: dict[str, str],
        processes: PulumiProcesses,
    ) -> None:
        super().__init__(work_dir=str(directory), pulumi_home=str(home), env_vars=environment, pulumi_command=processes)
        self.address = address
        self.directory = directory
        self._environment = {**environment, "PULUMI_HOME": str(home)}
        self._processes = processes
        self._arguments: tuple[str, ...] = ()

    def serialize_args_for_op(self, stack_name: str) -> list[str]:  # noqa: ARG002 -- the parent's signature
        """Arguments of the CLI that the Automation API has no name for."""
        return list(self._arguments)

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

    def preview(self, program: ObservedProgram) -> PreviewResult:
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
        return self._processes.run([*arguments, "--color", "never"], str(self.directory), self._environment)

    def _stack(self, *arguments: str) -> SingleProcessStack:
        self._arguments = (*ARGUMENTS, *arguments)
        return SingleProcessStack(self.address.stack, self)

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
                limit = self._processes.timeout
                raise StackFailedError(Fault.TIMEOUT, f"the Pulumi CLI did not end within {limit:g} s") from None
            if error.ending is Ending.INTERRUPTED:
                # While draining it is no failure of the stack's.
                self._processes.refuse_if_stopped()
                raise StackFailedError(Fault.CANCELLED, "interrupted on request") from None
            told = read_event_log(events) if isinstance(events, Path) else events
            program_error, hidden = (program.error, program.secrets) if program else (None, set())
            passphrase = self._environment["PULUMI_CONFIG_PASSPHRASE"]
            failure = build_failure(error.result, build_run(told), program_error, {*hidden, passphrase})
            # Not chained: what the CLI printed may hold what the message must not.
            raise failure from None
        finally:
            if program:
                program.finish()


def ask_cli(processes: PulumiProcesses, directory: Path, environment: Mapping[str, str]) -> Iterator[StackAddress]:
    """Of the root that the environment names, by one process."""
    try:
        arguments = ["stack", "ls", "--all", "--json", "--color", "never"]
        listed = processes.run(arguments, str(directory), environment).stdout
    except ProcessFailedError as error:
        processes.refuse_if_stopped()
        if error.ending is Ending.TIMEOUT:
            message = f"the Pulumi CLI did not list the stacks within {processes.timeout:g} s"
            raise StackFailedError(Fault.TIMEOUT, message) from None
        secrets = {environment["PULUMI_CONFIG_PASSPHRASE"]}
        raise build_failure(error.result, build_run(()), None, secrets) from None
    yield from parse_listing(listed)


def parse_listing(text: str) -> Iterator[StackAddress]:
    """`[{"name": "organization/<project>/<stack>", …}, …]`; the stacks of other projects are not ours."""
    for each in json.loads(text):
        project, _, stack = each["name"].rpartition("/")
        if address := parse_address(project.rpartition("/")[2], stack):
            yield address
