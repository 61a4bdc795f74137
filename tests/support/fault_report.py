"""What each fault test did: which faults it really caused, and which invariants held afterwards."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

PROPERTY = "faults"
"""The name under which a test's report carries these figures from its worker to the summary."""


@dataclass
class FaultReport:
    hits: Counter[str] = field(default_factory=Counter)
    invariants: list[str] = field(default_factory=list)

    def hit(self, fault: str, times: int = 1) -> None:
        """Call it once the fault was seen to happen, not when it was asked for."""
        self.hits[fault] += times

    def held(self, *invariants: str) -> None:
        """Call it after the assertions of these invariants."""
        self.invariants += invariants

    def to_json(self) -> dict[str, Any]:
        return {"hits": dict(self.hits), "invariants": self.invariants}


@dataclass
class FaultRow:
    """One line of the table: all runs of one test function."""

    runs: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    invariants: int = 0
    violations: int = 0

    def add(self, figures: dict[str, Any], *, failed: bool) -> None:
        self.runs += 1
        self.hits.update(figures["hits"])
        self.invariants += len(figures["invariants"])
        self.violations += failed


def build_table(rows: dict[str, FaultRow]) -> list[str]:
    """The table as lines of text, with a sum."""
    total = FaultRow()
    for row in rows.values():
        total.runs += row.runs
        total.hits.update(row.hits)
        total.invariants += row.invariants
        total.violations += row.violations
    lines = [f"{'runs':>5} {'faults hit':>11} {'invariants':>11} {'violations':>11}  test"]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        lines.append(f"{row.runs:>5} {row.hits.total():>11} {row.invariants:>11} {row.violations:>11}  {name}")
    return lines
