"""The way of one call, as a small picture: which step took how long. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from gpu_platform.cli.tables import parse_instant
from gpu_platform.cli.views import InvocationView

WIDTH = 32
"""Columns of the picture: the whole call."""


@dataclass(frozen=True)
class Moment:
    name: str
    seconds: float
    """Since the call was accepted."""


def list_moments(call: InvocationView) -> tuple[Moment, ...]:
    """Those that are known, in their order. What was before the call, another call had asked for."""
    start = call.get("coldStart")
    texts = {
        "accepted": call["acceptedAt"],
        "queued": call.get("queuedAt"),
        "woken": start.get("wokenAt") if start else None,
        "stock claimed": start.get("claimedAt") if start else None,
        "worker started": start["startedAt"] if start else None,
        "worker ready": start["readyAt"] if start else None,
        "begun": call.get("startedAt"),
        "answered": call.get("finishedAt"),
    }
    accepted_at = parse_instant(call["acceptedAt"])
    moments = [
        Moment(name, (parse_instant(text) - accepted_at).total_seconds()) for name, text in texts.items() if text
    ]
    return tuple(sorted((moment for moment in moments if moment.seconds >= 0), key=lambda moment: moment.seconds))


def build_timeline(call: InvocationView) -> Table:
    """A line per moment, with a bar for the way to it from the one before."""
    moments = list_moments(call)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, style="cyan")
    for moment, bar in zip(moments, build_bars([moment.seconds for moment in moments]), strict=True):
        table.add_row(moment.name, f"{moment.seconds * 1_000:,.0f} ms", bar)
    return table


def build_bars(ends: Sequence[float]) -> list[str]:
    """One from each end to the next, on one scale; a step that took time at all is seen."""
    whole = max(ends, default=0.0) or 1.0
    bars, before = [], 0.0
    for end in ends:
        begin = min(int(before / whole * WIDTH), WIDTH - 1)
        length = max(1, round((end - before) / whole * WIDTH)) if end > before else 0
        bars.append(" " * begin + "━" * min(length, WIDTH - begin))
        before = end
    return bars
