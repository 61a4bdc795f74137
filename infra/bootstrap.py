"""`python -m infra.bootstrap up|preview|refresh|destroy`: the program by the Automation API, with a line per change.

The same function, project and state as `pulumi up` at the root of the repository: either may follow the other. Also
started by `gpu-platform bootstrap`.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pulumi import automation

from infra.program import PROJECT, platform
from infra.pulumi_cli import (
    UNREADABLE,
    InterruptibleCommand,
    StackLock,
    find_locks,
    remove_dead,
    remove_unfinished,
    wait_for_holders,
)

ROOT = Path(__file__).resolve().parents[1]
ACTIONS = ("up", "preview", "refresh", "destroy")
FAILED = 1
MISUSED = 2
INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""

HOLDER_SECONDS = 30.0
"""For a CLI that works on the stack on this machine to end."""

UNFINISHED_SECONDS = 2.0
"""For one to finish writing its lock, which takes it milliseconds."""

LEFTOVERS = 2
"""Times that something left by a killed process is removed before the last try: an unfinished lock hides others."""

SHOWN = 3
"""Protected resources that a refusal names. Chosen by feel."""

COLOUR = re.compile(r"<\{%.*?%\}>")
"""Pulumi's own marks in messages, which its displays turn into colours."""

SIGNS = {"create": "+", "update": "~", "replace": "±", "delete": "-", "refresh": "~"}
"""How a change is shown, by its first word; what stays as it is, is not shown."""


class Progress:
    """Tells of each change as it is made, and of what went wrong."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self.problems: list[str] = []

    def take(self, event: automation.EngineEvent) -> None:
        if (told := event.diagnostic_event) is not None:
            message = " ".join(COLOUR.sub("", told.message).split())
            if told.severity == "error":
                self.problems.append(message)
            elif told.ephemeral and message:
                # What an object is waiting for: an update may stand still for minutes.
                kind, name = _parse(told.urn or "")
                self.tell(f"  … {kind.rpartition(':')[2]} {name}: {message}")
        done = event.res_outputs_event
        if done is not None and not self._is_quiet and (sign := SIGNS.get(done.metadata.op.split("-")[0])):
            kind, name = _parse(done.metadata.urn)
            self._say(f"  {sign} {kind:<60} {name}")

    def tell(self, line: str) -> None:
        if not self._is_quiet:
            self._say(line)

    def _say(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class LockedError(Exception):
    """Another process works on the stack, or seems to."""


class ProtectedError(Exception):
    """The stack has resources that Pulumi would refuse to delete, after it had deleted all others."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="infra.bootstrap", description="Makes a cluster into the platform.")
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("--stack", default="dev", help="which Pulumi.<stack>.yaml")
    parser.add_argument(
        "--refresh", action="store_true", help="with up: look at the cluster first, not only at the state"
    )
    parser.add_argument("--expect-no-changes", action="store_true", help="fail when anything would change")
    parser.add_argument("--json", action="store_true", help="print the counts of changes as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.refresh and chosen.action != "up":
        sys.stderr.write("error: --refresh goes with `up`; `refresh` alone only updates the state\n")
        return MISUSED
    if not (ROOT / f"Pulumi.{chosen.stack}.yaml").is_file():
        sys.stderr.write(f"error: there is no Pulumi.{chosen.stack}.yaml; the stack's settings belong there\n")
        return MISUSED
    progress = Progress(is_quiet=chosen.json)
    command = InterruptibleCommand()
    began_at = time.monotonic()
    try:
        with command.taking_signals():
            attempt = partial(
                run,
                chosen.action,
                chosen.stack,
                command,
                progress,
                refresh=chosen.refresh,
                expect_no_changes=chosen.expect_no_changes,
            )
            changes = run_unlocked(attempt, chosen.stack, command, progress)
    except (automation.errors.CommandError, LockedError, ProtectedError) as error:
        if command.is_interrupted:
            sys.stderr.write(f"error: interrupted; `{chosen.action}` again finishes what is missing\n")
            return INTERRUPTED
        for problem in progress.problems or [str(error).strip()]:
            sys.stderr.write(f"error: {problem}\n")
        return FAILED
    if chosen.json:
        sys.stdout.write(f"{json.dumps(changes)}\n")
    else:
        counted = ", ".join(f"{count} {what}" for what, count in sorted(changes.items())) or "nothing to do"
        sys.stdout.write(f"{chosen.action}: {counted}, in {time.monotonic() - began_at:.0f} s\n")
    return 0


def run_unlocked(
    attempt: Callable[[], dict[str, int]], stack_name: str, command: InterruptibleCommand, progress: Progress
) -> dict[str, int]:
    """Also after a run that was killed, and so could not take its lock away, or not finish it."""
    for _ in range(LEFTOVERS):
        try:
            return attempt()
        except automation.errors.CommandError as error:
            removed = remove_left(error, stack_name, command)
            if not removed:
                raise
        progress.problems.clear()
        for left in removed:
            progress.tell(f"  the lock of a dead process is removed: {left}")
    return attempt()


def remove_left(
    error: automation.errors.CommandError, stack_name: str, command: InterruptibleCommand
) -> Sequence[StackLock | Path]:
    """What dead processes left on the stack, at which this error says that the CLI failed."""
    if isinstance(error, automation.errors.ConcurrentUpdateError):
        locks = find_locks(str(error))
        if held := wait_for_holders(locks, HOLDER_SECONDS):
            holders = ", ".join(map(str, held))
            raise LockedError(
                f"the stack is locked by {holders}; wait for its end, or if that is no Pulumi at work: "
                f"`pulumi cancel --stack {stack_name}`"
            )
        return remove_dead(locks)
    if UNREADABLE.search(str(error)):
        backend_url = json.loads(command.run(["whoami", "--json"], str(ROOT), {}).stdout)["url"]
        return remove_unfinished(backend_url, PROJECT, stack_name, UNFINISHED_SECONDS)
    return ()


def run(
    action: str,
    stack_name: str,
    command: InterruptibleCommand,
    progress: Progress,
    *,
    refresh: bool,
    expect_no_changes: bool,
) -> dict[str, int]:
    """How many resources were, or would be, changed in which way."""
    options = automation.LocalWorkspaceOptions(work_dir=str(ROOT), pulumi_command=command)
    stack = automation.create_or_select_stack(stack_name, project_name=PROJECT, program=platform, opts=options)
    if action == "destroy":
        exported = command.run(["stack", "export", "--stack", stack_name], str(ROOT), {})
        refuse_protected(stack_name, json.loads(exported.stdout)["deployment"])
    if action == "preview":
        preview = stack.preview(on_event=progress.take, expect_no_changes=expect_no_changes)
        return {str(what): count for what, count in preview.change_summary.items()}
    if action == "up":
        summary = stack.up(on_event=progress.take, refresh=refresh, expect_no_changes=expect_no_changes).summary
    elif action == "refresh":
        summary = stack.refresh(on_event=progress.take, expect_no_changes=expect_no_changes).summary
    else:
        summary = stack.destroy(on_event=progress.take).summary
    return {str(what): count for what, count in (summary.resource_changes or {}).items()}


def refuse_protected(stack_name: str, state: dict[str, Any]) -> None:
    """Pulumi itself deletes what is not protected first: roles, policies and processes, of a platform that stays."""
    protected = [_name_of(each["urn"]) for each in state.get("resources") or () if each.get("protect")]
    if protected:
        some = ", ".join(protected[:SHOWN])
        raise ProtectedError(
            f"the stack {stack_name} is not destroyed, and nothing was changed: {len(protected)} of its resources are "
            f"protected ({some}, …). To delete the platform with everything in it, set gpu-platform:protect to false "
            f"in Pulumi.{stack_name}.yaml, run `gpu-platform bootstrap up --stack {stack_name}`, then `destroy` again"
        )


def _name_of(urn: str) -> str:
    """Such as `Namespace runtime-stock`."""
    kind, name = _parse(urn)
    return f"{kind.rpartition(':')[2]} {name}"


def _parse(urn: str) -> tuple[str, str]:
    """The resource's own type, without those of its parents, and its name."""
    kind, _, name = urn.rpartition("::")
    return kind.rpartition("$")[2].rpartition("::")[2], name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
