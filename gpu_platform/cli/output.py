"""What a person or a program sees of an answer: tables, colours, JSON and error messages, on stdout and stderr as they
are (encodings without all characters, disks without room). Every command prints through this module. Pure, but for
`print_` and for the streams."""

import codecs
import errno
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from gpu_platform.client import Answer, ApiError, PlatformError, ServerEvent
from gpu_platform.domain.units import Probe, Template

T = TypeVar("T")

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

LOOKALIKES = {"–": "-", "…": "...", "→": "->", "━": "=", "✓": "+"}
"""What our texts hold beyond ASCII, and what a terminal without it shows instead."""

FAILED = 1

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

HINTS = {
    "unauthenticated": 'set GPU_PLATFORM_KEY to a valid key, or run: eval "$(gpu-platform dev env)"',
    "forbidden": "ask an operator for a key with another role, or for a larger quota",
    "insufficient_capacity": "see `gpu-platform stock list`, or ask an operator for more stock",
    "precondition_failed": "it was changed meanwhile; look at it and try again",
    "gpuunit_not_found": "see `gpu-platform units list`",
    "stockunit_not_found": "see `gpu-platform stock list`",
    "stockpool_not_found": "see `gpu-platform pools list`",
    "gpu_metrics_not_configured": "an operator can say where they are: nvidiaMetricsEndpoint of the API",
    "spec_not_found": "see `gpu-platform specs list`",
    "job_not_found": "see `gpu-platform ops list`",
    "not_found": "the API does not know this route; is it older than this command?",
}

LATER = frozenset({"operation_in_progress", "service_unavailable", "too_many_requests"})


def accept_every_character() -> None:
    """A character that the encoding lacks is written as its lookalike, or else as its escape, never as an error."""
    codecs.register_error("gpu-platform", _find_lookalikes)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="gpu-platform")


def has_every_character(stream: object) -> bool:
    return str(getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def end_without_room(error: OSError) -> NoReturn:
    """Ends the process with one line, if there is room for that."""
    where = f" {error.filename}" if error.filename else ""
    with suppress(OSError):
        sys.stderr.write(f"error: cannot write{where}: {error.strerror}\n")
        sys.stderr.flush()
    # Python writes what is left when it ends, and would fail once more.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError, io.UnsupportedOperation):
            os.dup2(nowhere, stream.fileno())
    sys.exit(FAILED)


def _find_lookalikes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(LOOKALIKES.get(each) or _escape(each) for each in missing), error.end


def _escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode()


def print_json(data: Any, *, indent: int | None = 2) -> None:
    """Without an indent: on one line. Escaped where stdout lacks characters, so that what reads it gets them all."""
    typer.echo(json.dumps(data, indent=indent, ensure_ascii=not has_every_character(sys.stdout)))


def print_answer(answer: Answer[T], show: Callable[[T], None], *, as_json: bool) -> None:
    """The answer for machines as the API sent it, or what a person reads."""
    if as_json:
        print_json(answer.document)
    else:
        show(answer.value)


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


def print_line(*parts: str | Text | tuple[str, str]) -> None:
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
    if isinstance(value, datetime):
        value = describe_instant(value)
    text = ABSENT if value is None or value == "" else str(value)
    return coloured(text)


def plain(value: Any) -> str:
    """A value of the API's, as text within a line."""
    if value is None:
        return ABSENT
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def coloured(word: str) -> Text:
    return Text(word, style=COLOURS.get(word, ""))


def describe_instant(instant: datetime) -> str:
    """The form in which the API writes times."""
    return instant.isoformat().replace("+00:00", "Z")


def build_age(since: datetime | None, now: datetime) -> str:
    """`5m12s`: the two units that matter."""
    if since is None:
        return ABSENT
    instant = since if since.tzinfo else since.replace(tzinfo=UTC)
    return build_duration((now - instant).total_seconds())


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


def build_template_fields(template: Template) -> dict[str, str]:
    """What runs, of a unit or of a function's workers."""
    probes = template.probes
    kinds = {"startup": probes.startup, "readiness": probes.readiness, "liveness": probes.liveness} if probes else {}
    return {
        "command": " ".join(template.command),
        "arguments": " ".join(template.args),
        "environment": "\n".join(f"{env.name}={env.value}" for env in template.envs),
        "probes": "\n".join(_describe_probe(kind, probe) for kind, probe in kinds.items() if probe),
    }


def _describe_probe(kind: str, probe: Probe) -> str:
    """`readiness: GET /healthz on http; every 10 s, timeout 1 s, 3 failures count`."""
    if probe.http:
        question = f"GET {probe.http.path} on {probe.http.port}"
    elif probe.tcp:
        question = f"connection to {probe.tcp.port}"
    else:
        question = f"command {' '.join(probe.command or ())}"
    times = (
        f"first after {probe.initial_delay_seconds} s" if probe.initial_delay_seconds else "",
        f"every {probe.period_seconds} s",
        f"timeout {probe.timeout_seconds} s",
        f"{probe.failure_threshold} failures count",
    )
    return f"{kind}: {question}; {', '.join(filter(None, times))}"


def now() -> datetime:
    return datetime.now(UTC)


def print_error(error: Exception) -> None:
    console = Console(stderr=True, soft_wrap=True)
    console.print(Text.assemble(("error:", "bold red"), f" {error}"))
    for line in build_explanation(error):
        console.print(Text(f"  {line}"))


def build_explanation(error: Exception) -> tuple[str, ...]:
    """What follows the error's own sentence, a line each."""
    lines: list[str] = []
    if isinstance(error, ApiError):
        details = [f"{detail.field}: {detail.message}" if detail.field else detail.message for detail in error.details]
        # A single detail is often the whole message.
        lines += [detail for detail in details if detail != str(error)]
        lines += [hint] if (hint := _find_hint(error)) else []
        lines += [f"request {error.request_id}"] if error.status >= 500 and error.request_id else []
    if isinstance(error, PlatformError):
        lines += getattr(error, "__notes__", [])
    return tuple(lines)


def _find_hint(error: ApiError) -> str | None:
    if error.code in LATER:
        after = error.retry_after_seconds
        return f"try again in {after} s" if after else "try again in a moment"
    return HINTS.get(error.code)


def print_replay(answer: Answer[Any], name: str, *, as_json: bool) -> None:
    if not answer.is_new and not as_json:
        print_line(f"{name} was accepted before, with the same operation")


def print_logs(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        typer.echo(piece, nl=False)


def print_event(event: ServerEvent[T], print_change: Callable[[str, ServerEvent[T]], None], *, as_json: bool) -> None:
    """One event of a watch: an object on one line, or the line of `print_change`, which begins with the time."""
    if as_json:
        print_json({"event": event.event, "id": event.id, "data": event.data}, indent=None)
    else:
        print_change(now().astimezone().strftime("%H:%M:%S"), event)
