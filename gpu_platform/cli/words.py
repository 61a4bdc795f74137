"""What units and storages have to say: their events and their logs, alike for both."""

from collections.abc import Iterable
from typing import Annotated

import typer

from gpu_platform.cli.options import said
from gpu_platform.cli.tables import build_age, now, print_json, print_rows
from gpu_platform.cli.views import EventView

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")]
Tail = Annotated[int | None, typer.Option(min=0, help="Only so many of the last lines.")]
Previous = Annotated[bool, typer.Option("--previous", help="Of the container before the last restart.")]
Timestamps = Annotated[bool, typer.Option("--timestamps", help="With the time of every line.")]


def build_log_params(*, follow: bool, tail: int | None, previous: bool, timestamps: bool) -> dict[str, str]:
    return said(
        follow="true" if follow else None,
        tail=None if tail is None else str(tail),
        previous="true" if previous else None,
        timestamps="true" if timestamps else None,
    )


def print_logs(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        typer.echo(piece, nl=False)


def print_events(name: str, happened: list[EventView], *, as_json: bool) -> None:
    if as_json:
        print_json(happened)
        return
    print_rows(
        ("AGE", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"),
        (
            (
                build_age(event["lastSeen"], now()),
                event["type"],
                event["reason"],
                event["object"],
                event["count"],
                event["message"],
            )
            for event in happened
        ),
        empty=f"nothing is known to have happened to {name}; the cluster forgets after an hour",
    )
