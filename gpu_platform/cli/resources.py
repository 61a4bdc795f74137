"""The commands that have the same shape for every resource: list, get, delete, stack, events."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import typer

from gpu_platform.api_models.events import EventView
from gpu_platform.api_models.stacks import StackView
from gpu_platform.cli.options import AsJson, Name, Url
from gpu_platform.cli.output import (
    build_age,
    build_details,
    describe_instant,
    now,
    plain,
    print_answer,
    print_line,
    print_rows,
    print_table,
)
from gpu_platform.client import Answer, Client, RawClient

V = TypeVar("V")
Columns = Mapping[str, Callable[[V], object]]
"""The headers of a table, and the value of each row below."""

Ask = Callable[[RawClient], Callable[[str], Answer[V]]]
"""The client's method that takes the name."""

HASH_DIGITS = 12
"""Enough to tell two apart by eye; --json has all of them."""

EVENT_COLUMNS: Columns[EventView] = {
    "AGE": lambda event: build_age(event.last_seen, now()),
    "TYPE": lambda event: event.type,
    "REASON": lambda event: event.reason,
    "OBJECT": lambda event: event.object,
    "COUNT": lambda event: event.count,
    "MESSAGE": lambda event: event.message,
}


def connect(url: str | None, *, needs_key: bool = True) -> RawClient:
    """A client for this URL, or else the environment's. Close it, or use it in a `with`."""
    return Client(url, needs_key=needs_key).with_raw_response


def print_list(answer: Answer[tuple[V, ...]], columns: Columns[V], *, empty: str, as_json: bool) -> None:
    def show(views: tuple[V, ...]) -> None:
        print_rows(tuple(columns), ([find(view) for find in columns.values()] for view in views), empty=empty)

    print_answer(answer, show, as_json=as_json)


def add_show(
    app: typer.Typer,
    command: str,
    explanation: str,
    ask: Ask[V],
    build_fields: Callable[[V], Mapping[str, object]],
) -> None:
    """A command that shows one object: a line per field."""

    @app.command(command, help=explanation)
    def show(name: Name, as_json: AsJson = False, url: Url = None) -> None:
        with connect(url) as client:
            answer = ask(client)(name)
        print_answer(answer, lambda view: print_table(build_details(build_fields(view))), as_json=as_json)


def add_delete(app: typer.Typer, explanation: str, ask: Ask[Any]) -> None:
    @app.command("delete", help=explanation)
    def delete(name: Name, as_json: AsJson = False, url: Url = None) -> None:
        with connect(url) as client:
            ask(client)(name)
        if not as_json:
            print_line(f"{name} is being deleted")


def add_stack(app: typer.Typer, explanation: str, ask: Ask[StackView]) -> None:
    add_show(app, "stack", explanation, ask, _build_stack_fields)


def add_events(app: typer.Typer, explanation: str, ask: Ask[tuple[EventView, ...]]) -> None:
    @app.command("events", help=explanation)
    def events(name: Name, as_json: AsJson = False, url: Url = None) -> None:
        with connect(url) as client:
            answer = ask(client)(name)
        empty = f"nothing is known to have happened to {name}; the cluster forgets after an hour"
        print_list(answer, EVENT_COLUMNS, empty=empty, as_json=as_json)


def _build_stack_fields(stack: StackView) -> dict[str, object]:
    recorded_at = stack.recorded_at
    behind = "no, an earlier state is" if stack.recorded_hash else "not yet"
    return {
        "name": stack.name,
        "recorded": "yes" if stack.recorded else behind,
        "accepted": stack.accepted_hash[:HASH_DIGITS],
        "says": (stack.recorded_hash or "")[:HASH_DIGITS],
        "since": f"{describe_instant(recorded_at)} ({build_age(recorded_at, now())} ago)" if recorded_at else None,
        "resources": stack.resources,
        "outputs": "\n".join(f"{key}={plain(value)}" for key, value in (stack.outputs or {}).items()),
        "failures": stack.failures or None,
        "error": stack.error,
    }
