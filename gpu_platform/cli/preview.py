"""`gpu-platform preview`: what `pulumi up` would change, in one table, and which rules it would break."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gpu_platform.cli.output import print_json, print_line, print_rows
from gpu_platform.cli.plans.changes import Changes, PropertyChange, build_changes
from gpu_platform.cli.plans.digest import ABSENT, NoPlanError, Plan, find_failure, parse_plan
from gpu_platform.cli.plans.markdown import build_heading, build_name, describe_rule, list_lines, render_markdown
from gpu_platform.cli.plans.rules import BrokenRule, check_rules

STYLES = {"create": "green", "update": "yellow", "replace": "bold magenta", "delete": "bold red"}
# With it set, Pulumi prints a stream of events instead of one plan.
STREAMING = "PULUMI_ENABLE_STREAMING_JSON_PREVIEW"
STDIN = Path("-")


def preview(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print for a comment on a pull request.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print for machines.")] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Read what `pulumi preview --json` printed, instead of running it; - is stdin."),
    ] = None,
    stack: Annotated[str | None, typer.Option(help="The stack to preview, instead of the selected one.")] = None,
) -> None:
    """Show what `pulumi up` would change, secrets masked. Exits with 1 if it breaks a rule, with 2 without a plan."""
    if markdown and as_json:
        raise typer.BadParameter("--markdown and --json exclude each other")
    if file is not None and stack is not None:
        raise typer.BadParameter("--stack is for a preview that is run, not for one from --file")
    plan = read_plan(file) if file is not None else run_preview(stack)
    changes = build_changes(plan)
    broken = check_rules(changes.listed)
    if markdown:
        typer.echo(render_markdown(changes, broken), nl=False)
    elif as_json:
        print_json(build_answer(changes, broken))
    else:
        _print_changes(changes, broken)
    if broken:
        raise typer.Exit(1)


def read_plan(file: Path) -> Plan:
    if file == STDIN:
        return parse_plan(sys.stdin.read(), "what came on stdin")
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise NoPlanError(f"{file} cannot be read: {why}") from None
    return parse_plan(text, str(file))


def run_preview(stack: str | None) -> Plan:
    command = ["pulumi", "preview", "--json", "--non-interactive", *(["--stack", stack] if stack else [])]
    environment = {name: value for name, value in os.environ.items() if name != STREAMING}
    try:
        # On a terminal only; it may take a minute, in which Pulumi itself says nothing.
        with Console(stderr=True).status("pulumi preview …"):
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoPlanError('there is no pulumi on PATH; try: eval "$(gpu-platform dev env)"') from None
    if ended.returncode != 0:
        said = find_failure(ended.stdout) or " ".join(ended.stderr.removeprefix("error: ").split())
        raise NoPlanError(f"pulumi preview failed: {said or f'it ended with {ended.returncode} and said nothing'}")
    return parse_plan(ended.stdout, "what pulumi preview printed")


def build_answer(changes: Changes, broken: Sequence[BrokenRule]) -> dict[str, Any]:
    return {
        "counts": changes.counts,
        "changes": [
            {
                "operation": change.operation,
                "kind": change.kind,
                "name": change.name,
                "urn": change.urn,
                "properties": [_build_property(entry) for entry in change.properties],
            }
            for change in changes.listed
        ],
        "brokenRules": [
            {"rule": rule.rule, "kind": rule.kind, "name": rule.name, "path": rule.path, "reason": rule.reason}
            for rule in broken
        ],
    }


def _build_property(entry: PropertyChange) -> dict[str, Any]:
    sides = {"old": entry.old, "new": entry.new}
    return {
        "path": entry.path,
        **{side: value for side, value in sides.items() if value is not ABSENT},
        "replaces": entry.replaces,
    }


def _print_changes(changes: Changes, broken: Sequence[BrokenRule]) -> None:
    print_line((build_heading(changes), "bold"))
    print_rows(
        ("OPERATION", "KIND", "NAME", "CHANGES"),
        (
            (
                Text(change.operation, style=STYLES.get(change.operation, "")),
                Text(build_name(change.kind)),
                Text(build_name(change.name)),
                Text("\n".join(list_lines(change, str, replaces="(replaces)")) or "–"),
            )
            for change in changes.listed
        ),
        empty="nothing changes",
    )
    for rule in broken:
        print_line((rule.rule, "bold red"), f" {describe_rule(rule, str)}")
