"""A measured figure: what it compares, what is wanted of it, and how it is shown and kept."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from rich.table import Table

from gpu_platform.domain.json_text import Json


@dataclass(frozen=True)
class Goal:
    """At most this, or at least. `of_ratio` says whether the ratio is meant, or the value itself."""

    limit: float
    of_ratio: bool = False
    at_least: bool = False


@dataclass(frozen=True)
class Figure:
    id: str
    what: str
    value: float
    unit: str
    samples: int
    baseline: float | None = None
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline if self.baseline else None

    @property
    def is_ok(self) -> bool | None:
        """None: nothing is wanted of it, it explains another one."""
        if self.goal is None:
            return None
        judged = self.ratio if self.goal.of_ratio else self.value
        if judged is None:
            return False
        return judged >= self.goal.limit if self.goal.at_least else judged <= self.goal.limit

    def to_json(self) -> Json:
        return {
            "id": self.id,
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "goal": asdict(self.goal) if self.goal else None,
            "ok": self.is_ok,
            "samples": self.samples,
        }


def p50(samples: Iterable[float]) -> float:
    return median(samples)


def p99(samples: Sequence[float]) -> float:
    """The smallest sample that 99 of 100 do not exceed."""
    return sorted(samples)[math.ceil(0.99 * len(samples)) - 1]


def build_table(figures: Iterable[Figure]) -> Table:
    table = Table(title="Figures", title_justify="left")
    table.add_column("id")
    table.add_column("what")
    for name in ("value", "baseline", "ratio", "goal", "samples"):
        table.add_column(name, justify="right")
    for figure in figures:
        colour = {True: "green", False: "bold red", None: "dim"}[figure.is_ok]
        table.add_row(
            figure.id,
            figure.what,
            _amount(figure.value, figure.unit),
            _amount(figure.baseline, figure.unit),
            "–" if figure.ratio is None else f"{figure.ratio:.2f}",
            f"[{colour}]{_goal(figure)}[/]",
            str(figure.samples),
        )
    return table


def save_figures(path: Path, figures: Iterable[Figure]) -> None:
    path.parent.mkdir(exist_ok=True)
    document = {
        "measuredAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "figures": [figure.to_json() for figure in figures],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def _amount(amount: float | None, unit: str) -> str:
    if amount is None:
        return "–"
    match unit:
        case "s":
            return f"{amount * 1000:.{'1' if amount < 0.1 else '0'}f} ms"
        case "/s":
            return f"{amount:.{'2' if amount < 10 else '0'}f} /s"
    return f"{amount:.4g}"


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return "–"
    limit = f"{'≥' if figure.goal.at_least else '≤'} {figure.goal.limit:g}"
    return f"ratio {limit}" if figure.goal.of_ratio else f"{limit}{' s' if figure.unit == 's' else ''}"
