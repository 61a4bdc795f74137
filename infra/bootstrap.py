"""`python -m infra.bootstrap up|preview|refresh|destroy`: the program by the Automation API, with a line per change.

The same function, project and state as `pulumi up` at the root of the repository: either may follow the other. Also
started by `gpu-platform bootstrap`.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from pulumi import automation

from infra.program import PROJECT, platform

ROOT = Path(__file__).resolve().parents[1]
ACTIONS = ("up", "preview", "refresh", "destroy")
FAILED = 1
MISUSED = 2

SIGNS = {"create": "+", "update": "~", "replace": "±", "delete": "-", "refresh": "~"}
"""How a change is shown, by its first word; what stays as it is, is not shown."""


class Progress:
    """Tells of each change as it is made, and of what went wrong."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self.problems: list[str] = []

    def take(self, event: automation.EngineEvent) -> None:
        if event.diagnostic_event is not None and event.diagnostic_event.severity == "error":
            self.problems.append(" ".join(event.diagnostic_event.message.split()))
        done = event.res_outputs_event
        if done is not None and not self._is_quiet and (sign := SIGNS.get(done.metadata.op.split("-")[0])):
            kind, _, name = done.metadata.urn.rpartition("::")
            self._say(f"  {sign} {kind.rpartition('$')[2].rpartition('::')[2]:<60} {name}")

    def _say(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="infra.bootstrap", description="Makes a cluster into the platform.")
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("--stack", default="dev", help="which Pulumi.<stack>.yaml")
    parser.add_argument("--expect-no-changes", action="store_true", help="fail when anything would change")
    parser.add_argument("--json", action="store_true", help="print the counts of changes as JSON")
    chosen = parser.parse_args(arguments)
    if not (ROOT / f"Pulumi.{chosen.stack}.yaml").is_file():
        sys.stderr.write(f"error: there is no Pulumi.{chosen.stack}.yaml; the stack's settings belong there\n")
        return MISUSED
    progress = Progress(is_quiet=chosen.json)
    began_at = time.monotonic()
    try:
        changes = run(chosen.action, chosen.stack, progress, expect_no_changes=chosen.expect_no_changes)
    except automation.errors.CommandError as error:
        for problem in progress.problems or [str(error).strip()]:
            sys.stderr.write(f"error: {problem}\n")
        return FAILED
    if chosen.json:
        sys.stdout.write(f"{json.dumps(changes)}\n")
    else:
        counted = ", ".join(f"{count} {what}" for what, count in sorted(changes.items())) or "nothing to do"
        sys.stdout.write(f"{chosen.action}: {counted}, in {time.monotonic() - began_at:.0f} s\n")
    return 0


def run(action: str, stack_name: str, progress: Progress, *, expect_no_changes: bool) -> dict[str, int]:
    """How many resources were, or would be, changed in which way."""
    stack = automation.create_or_select_stack(
        stack_name, project_name=PROJECT, program=platform, opts=automation.LocalWorkspaceOptions(work_dir=str(ROOT))
    )
    if action == "preview":
        preview = stack.preview(on_event=progress.take, expect_no_changes=expect_no_changes)
        return {str(what): count for what, count in preview.change_summary.items()}
    if action == "up":
        summary = stack.up(on_event=progress.take, expect_no_changes=expect_no_changes).summary
    elif action == "refresh":
        summary = stack.refresh(on_event=progress.take, expect_no_changes=expect_no_changes).summary
    else:
        summary = stack.destroy(on_event=progress.take).summary
    return {str(what): count for what, count in (summary.resource_changes or {}).items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
