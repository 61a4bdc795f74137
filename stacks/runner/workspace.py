"""The Automation API's stack and workspace, without the processes that they start on their own account."""

from datetime import UTC, datetime
from pathlib import Path

from pulumi import automation

from stacks.runner.cli import PulumiProcesses


class StackWorkspace(automation.LocalWorkspace):
    """One stack's directory, with arguments for the CLI that the Automation API has no name for."""

    def __init__(
        self, directory: Path, home: Path, environment: dict[str, str], processes: PulumiProcesses, *arguments: str
    ) -> None:
        super().__init__(work_dir=str(directory), pulumi_home=str(home), env_vars=environment, pulumi_command=processes)
        self._arguments = arguments

    def serialize_args_for_op(self, stack_name: str) -> list[str]:  # noqa: ARG002 -- the parent's signature
        return list(self._arguments)


class SingleProcessStack(automation.Stack):
    """`up` and `preview` start one process each; the parent adds up to four."""

    def __init__(self, name: str, workspace: StackWorkspace) -> None:
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
