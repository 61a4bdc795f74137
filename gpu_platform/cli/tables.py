"""How answers look to a person. Pure, but for `print_`."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from gpu_platform.cli.output import has_every_character

COLOURS = {
    # phases of units, stock and pools
    "Ready": "green",
    "Progressing": "yellow",
    "Pending": "yellow",
    "Terminating": "yellow",
    "Stopped": "dim",
    "Failed": "red",
    # states of stock
    "available": "green",
    "waiting": "yellow",
    "claimed": "cyan",
    # jobs and calls
    "pending": "yellow",
    "queued": "yellow",
    "expired": "red",
    "cancelled": "dim",
    "dead_lettered": "red",
    "running": "yellow",
    "succeeded": "green",
    "failed": "red",
    # what a preview would do
    "create": "green",
    "update": "yellow",
    "replace": "red",
    "delete": "red",
    # events
    "Warning": "yellow",
    "added": "green",
    "deleted": "red",
}
# Columns that a sentence gets at least. Half a name helps nobody: a narrow terminal wraps the line instead.
NARROWEST_SENTENCE = 30
GAP = 2
# Columns; wider than any row, because a program that reads the table wants whole words.
UNCUT = 1_000
ABSENT = "–"


def print_json(data: Any, *, indent: int | None = 2) -> None:
    """Without an indent: on one line. Escaped where stdout lacks characters, so that what reads it gets them all."""
    typer.echo(json.dumps(data, indent=indent, ensure_ascii=not has_every_character(sys.stdout)))


def print_table(table: Table, *, narrowest: int = 0) -> None:
    console = Console()
    width = max(console.width, narrowest) if console.is_terminal else UNCUT
    # Both at once: a dumb terminal does not listen to one of them.
    console.size = ConsoleDimensions(width, console.height)
    console.print(table)


def print_rows(headers: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table, or, where there is nothing to show, a sentence for the person only."""
    listed = [[show(value) for value in row] for row in rows]
    if listed:
        words = zip(*(row[:-1] for row in [[Text(header) for header in headers], *listed]), strict=True)
        widths = [max(word.cell_len for word in column) + GAP for column in words]
        print_table(build_table(headers, listed), narrowest=sum(widths) + NARROWEST_SENTENCE)
    else:
        print_remark(empty)


def print_line(*parts: str | tuple[str, str]) -> None:
    Console(soft_wrap=True).print(Text.assemble(*parts))


def print_remark(text: str) -> None:
    """Said to the person, not part of the answer."""
    Console(stderr=True, soft_wrap=True).print(Text(text))


def print_beside(table: Table) -> None:
    """The same as a table: whoever reads the answer does not get it."""
    Console(stderr=True).print(table)


def build_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Only the last column, the one with sentences, may take several lines."""
    table = Table(box=None, pad_edge=False)
    for index, header in enumerate(headers):
        is_last = index == len(headers) - 1
        table.add_column(header, no_wrap=not is_last, overflow="fold" if is_last else "ellipsis")
    for row in rows:
        table.add_row(*(show(value) for value in row))
    return table


def build_details(fields: Mapping[str, object]) -> Table:
    """One object: a line per field that has a value."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value is not None and value != "" and value != []:
            table.add_row(name, show(value))
    return table


def show(value: object) -> Text:
    """The value as it is: what looks like markup in an answer is not ours."""
    if isinstance(value, Text):
        return value
    text = ABSENT if value is None or value == "" else str(value)
    return coloured(text)


def plain(value: Any) -> str:
    """A value of the API's, as text within a line."""
    if value is None:
        return ABSENT
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def coloured(word: str) -> Text:
    return Text(word, style=COLOURS.get(word, ""))


def coloured_word(word: str) -> tuple[str, str]:
    """The same, as a part of a line."""
    return word, COLOURS.get(word, "")


def parse_instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def build_age(since: str | None, now: datetime) -> str:
    """`5m12s`: the two units that matter."""
    if not since:
        return ABSENT
    try:
        return build_duration((now - parse_instant(since)).total_seconds())
    except ValueError:
        return ABSENT


def build_duration(total_seconds: float) -> str:
    # A clock that is a little behind is no reason for a negative age.
    seconds = max(0, int(total_seconds))
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60}m"
    if minutes:
        return f"{minutes}m{seconds % 60}s"
    return f"{seconds}s"


def build_why(view: Mapping[str, Any]) -> str:
    """`reason: message`, as far as they are known."""
    return ": ".join(str(part) for part in (view.get("reason"), view.get("message")) if part)


def build_template_fields(template: Mapping[str, Any]) -> dict[str, str]:
    """What runs, of a unit or of a function's workers."""
    return {
        "command": " ".join(template.get("command") or ()),
        "arguments": " ".join(template.get("args") or ()),
        "environment": "\n".join(f"{env['name']}={env.get('value', '')}" for env in template.get("envs") or ()),
        "probes": "\n".join(_describe_probe(kind, probe) for kind, probe in (template.get("probes") or {}).items()),
    }


def _describe_probe(kind: str, probe: Mapping[str, Any]) -> str:
    """`readiness: GET /healthz on http; every 10 s, timeout 1 s, 3 failures count`."""
    if http := probe.get("http"):
        question = f"GET {http.get('path', '/')} on {http['port']}"
    elif tcp := probe.get("tcp"):
        question = f"connection to {tcp['port']}"
    else:
        question = f"command {' '.join(probe.get('command') or ())}"
    delay = probe.get("initialDelaySeconds")
    times = (
        f"first after {delay} s" if delay else "",
        f"every {probe.get('periodSeconds', 10)} s",
        f"timeout {probe.get('timeoutSeconds', 1)} s",
        f"{probe.get('failureThreshold', 3)} failures count",
    )
    return f"{kind}: {question}; {', '.join(filter(None, times))}"


def now() -> datetime:
    return datetime.now(UTC)
