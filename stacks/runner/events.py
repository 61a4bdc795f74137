"""What the engine said of one run: the steps it took, and what it complained about."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pulumi import automation

ENGINE_TYPES = ("pulumi:pulumi:Stack", "pulumi:providers:")
"""Resources of the engine's own: every stack has them, and no program declares them."""

GONE = frozenset({"delete", "discard"})


@dataclass(frozen=True)
class Diagnostic:
    urn: str
    message: str


@dataclass(frozen=True)
class Run:
    """An account of a run, complete only if the CLI could write it to the end."""

    changes: dict[str, int]
    """Resources by operation, those that stay the same included."""

    resources: int
    """Those there at the end."""

    errors: tuple[Diagnostic, ...]
    refused: frozenset[str]
    """URNs whose provider failed."""


def read_event_log(path: Path) -> tuple[automation.EngineEvent, ...]:
    """A killed CLI leaves half a line, or no file."""
    events = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            events.append(automation.EngineEvent.from_json(json.loads(line)))
        except ValueError:
            break
    return tuple(events)


def build_run(events: Iterable[automation.EngineEvent]) -> Run:
    present: dict[str, bool] = {}
    errors: list[Diagnostic] = []
    refused: set[str] = set()
    events = tuple(events)
    for event in events:
        if event.res_outputs_event:
            step = event.res_outputs_event.metadata
            present[step.urn] = step.op.value not in GONE and step.new is not None
        if event.res_op_failed_event:
            refused.add(event.res_op_failed_event.metadata.urn)
        if event.diagnostic_event and event.diagnostic_event.severity == "error":
            errors.append(Diagnostic(event.diagnostic_event.urn or "", event.diagnostic_event.message))
    return Run(
        changes=dict(Counter(step.op.value for step in list_steps(events))),
        resources=sum(there for urn, there in present.items() if is_declared(type_of(urn))),
        errors=tuple(errors),
        refused=frozenset(refused),
    )


def list_steps(events: Iterable[automation.EngineEvent]) -> tuple[automation.StepEventMetadata, ...]:
    """The program's own, each once: a replacement counts as such, not as what it consists of."""
    steps = (event.resource_pre_event.metadata for event in events if event.resource_pre_event)
    return tuple(step for step in steps if step.logical and is_declared(step.type))


def is_declared(resource_type: str) -> bool:
    return not resource_type.startswith(ENGINE_TYPES)


def type_of(urn: str) -> str:
    """`urn:pulumi:<stack>::<project>::<parent type>$<type>::<name>`"""
    return urn.split("::")[2].rpartition("$")[2]


def name_of(urn: str) -> str:
    return urn.split("::", 3)[3]
