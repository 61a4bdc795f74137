"""What an update would change, taken from the engine's events."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pulumi import automation

from stacks.runner.events import build_run, list_steps, name_of
from stacks.runner.results import MASK

SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d"  # noqa: S105 -- the key by which Pulumi marks a special value

PATH_PART = re.compile(r"""\["(?P<quoted>(?:[^"\\]|\\.)*)"\]|\[(?P<index>\d+)\]|(?P<name>[^.\[]+)""")


@dataclass(frozen=True)
class PropertyChange:
    path: str
    kind: str
    """add, delete, update, or one of them with `-replace`."""

    old: Any = None
    new: Any = None
    """Secrets are masked. None where the events give no value, or there is none."""


@dataclass(frozen=True)
class PreviewStep:
    op: str
    name: str
    """The last part of the resource's URN."""

    type: str
    properties: tuple[PropertyChange, ...] = ()


@dataclass(frozen=True)
class Preview:
    changes: dict[str, int]
    """Resources by operation, those that stay the same included."""

    steps: tuple[PreviewStep, ...]
    """Those that change something."""


def build_preview(events: Iterable[automation.EngineEvent]) -> Preview:
    events = tuple(events)
    changing = (step for step in list_steps(events) if step.op is not automation.OpType.SAME)
    return Preview(build_run(events).changes, tuple(build_step(step) for step in changing))


def build_step(step: automation.StepEventMetadata) -> PreviewStep:
    detailed = {path: (diff.diff_kind.value, diff.input_diff) for path, diff in (step.detailed_diff or {}).items()}
    differences = detailed or dict.fromkeys(step.diffs or (), ("update", True))
    properties = []
    for path, (kind, of_inputs) in sorted(differences.items()):
        old = (step.old.inputs if of_inputs else step.old.outputs) if step.old else None
        new = step.new.inputs if step.new else None
        properties.append(PropertyChange(path, kind, find_value(old, path), find_value(new, path)))
    return PreviewStep(step.op.value, name_of(step.urn), step.type, tuple(properties))


def find_value(tree: Any, path: str) -> Any:
    for part in PATH_PART.finditer(path):
        if is_secret(tree):
            return MASK
        index, name = part["index"], part["quoted"] or part["name"]
        if index is not None and isinstance(tree, list) and int(index) < len(tree):
            tree = tree[int(index)]
        elif index is None and isinstance(tree, dict):
            tree = tree.get(name)
        else:
            return None
    return masked(tree)


def masked(value: Any) -> Any:
    if is_secret(value):
        return MASK
    if isinstance(value, dict):
        return {name: masked(each) for name, each in value.items()}
    return [masked(each) for each in value] if isinstance(value, list) else value


def is_secret(value: Any) -> bool:
    return isinstance(value, dict) and SECRET_SIGNATURE in value and "ciphertext" in value
