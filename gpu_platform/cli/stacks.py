"""What Pulumi keeps of a unit, and what it would change: `units stack`, `units preview`; and how a stack is shown."""

from typing import Annotated

import typer

from gpu_platform.cli.client import PlatformClient
from gpu_platform.cli.connection import connect
from gpu_platform.cli.options import DEFAULT_TIMEOUT, AsJson, Name, OperationId, Url
from gpu_platform.cli.output import (
    build_age,
    build_details,
    coloured_word,
    now,
    plain,
    print_json,
    print_line,
    print_rows,
    print_table,
)
from gpu_platform.cli.views import PreviewView, PropertyChangeView, StackView
from gpu_platform.cli.wait import Deadline, build_goes_on, judge_preview, judge_recorded, wait_for

HASH_DIGITS = 12
"""Enough to tell two apart by eye; --json has all of them."""

Patience = Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for the answer at most.")]


def add_commands(app: typer.Typer) -> None:
    app.command()(stack)
    app.command()(preview)


def stack(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show what Pulumi has recorded of a unit."""
    with connect(url) as client:
        print_stack(client.get_unit_stack(name), as_json=as_json)


def preview(
    name: Name,
    operation_id: OperationId = None,
    timeout: Patience = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show what Pulumi would change to make a unit as it was accepted. Nothing is changed."""
    with connect(url) as client:
        deadline = Deadline(timeout)
        asked = client.preview_unit(name, operation_id).view
        operation = asked["operationID"]
        found = wait_for(
            f"preview of {name}",
            lambda: client.find_preview(name, operation),
            judge_preview,
            deadline,
            goal="done",
            goes_on=f"the preview goes on: the same command with  --operation-id {operation}  shows it",
        )
    if as_json:
        print_json(found or asked)
    else:
        _print_preview(found or asked)


def wait_recorded(client: PlatformClient, name: str, deadline: Deadline, *, as_json: bool) -> None:
    kept = wait_for(
        f"stack of {name}",
        lambda: client.get_unit_stack(name),
        judge_recorded,
        deadline,
        goal="recorded",
        goes_on=build_goes_on("units", name),
    )
    if kept and not as_json:
        print_line(f"{name} is recorded as {kept['name']} after {deadline.elapsed_seconds():.1f} s")


def print_stack(stack: StackView, *, as_json: bool) -> None:
    if as_json:
        print_json(stack)
        return
    recorded_at = stack.get("recordedAt")
    fields = {
        "name": stack["name"],
        "recorded": _state_of(stack),
        "accepted": stack["acceptedHash"][:HASH_DIGITS],
        "says": (stack.get("recordedHash") or "")[:HASH_DIGITS],
        "since": f"{recorded_at} ({build_age(recorded_at, now())} ago)" if recorded_at else None,
        "resources": stack.get("resources"),
        "outputs": "\n".join(f"{key}={plain(value)}" for key, value in (stack.get("outputs") or {}).items()),
        "failures": stack["failures"] or None,
        "error": stack.get("error"),
    }
    print_table(build_details(fields))


def _state_of(stack: StackView) -> str:
    if stack["recorded"]:
        return "yes"
    return "no, an earlier state is" if stack.get("recordedHash") else "not yet"


def _print_preview(preview: PreviewView) -> None:
    steps = [step for step in preview.get("steps") or () if step["op"] != "same"]
    if not steps:
        print_line(f"{preview['unit']}: no changes")
        return
    for step in steps:
        print_line(coloured_word(step["op"]), f"  {step['type']}  {step['resource']}")
        if step.get("properties"):
            print_rows(("PATH", "KIND", "CHANGE"), map(_row_of, step["properties"]), empty="")
    counts = ", ".join(f"{count} {op}" for op, count in (preview.get("changes") or {}).items())
    print_line(f"{preview['unit']}: {counts}")


def _row_of(change: PropertyChangeView) -> tuple[str, str, str]:
    return change["path"], change["kind"], f"{plain(change.get('old'))} -> {plain(change.get('new'))}"
