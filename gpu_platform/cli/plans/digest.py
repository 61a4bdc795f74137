"""Reads what `pulumi preview --json` prints: one object, Pulumi's PreviewDigest. Knows its form, and judges nothing."""

import json
from dataclasses import dataclass, field
from typing import Any

from gpu_platform.cli.errors import PlatformError

Json = dict[str, Any]


class NoPlanError(PlatformError):
    """What was given or came is no plan, or not a whole one."""

    exit_code = 2


@dataclass(frozen=True)
class Difference:
    """An entry of a step's `detailedDiff`."""

    kind: str
    """`add`, `update` or `delete`, with `-replace` behind it where it is a reason to replace."""

    is_of_inputs: bool
    """Whether the old value is among the old inputs; else it is what the cluster had."""

    @property
    def replaces(self) -> bool:
        return self.kind.endswith("-replace")


@dataclass(frozen=True)
class Step:
    operation: str
    urn: str
    type: str
    old_inputs: Json = field(default_factory=dict)
    old_outputs: Json = field(default_factory=dict)
    new_inputs: Json = field(default_factory=dict)
    differences: dict[str, Difference] | None = None
    """By property path. None where the provider told no details."""

    diff_reasons: tuple[str, ...] = ()
    replace_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]
    same: int
    """Resources that stay as they are. Most of them have no step."""


def parse_plan(text: str, source: str) -> Plan:
    """`source` is how the error calls what was read."""
    try:
        digest = json.loads(text)
    except (ValueError, RecursionError):
        raise NoPlanError(f"{source} is no plan: it is not one JSON document") from None
    if not isinstance(digest, dict):
        raise NoPlanError(f"{source} is no plan: it is not an object, as `pulumi preview --json` prints it")
    if errors := _list_errors(digest):
        raise NoPlanError(f"{source} is not a whole plan: {errors[0]}")
    steps = digest.get("steps")
    if not isinstance(steps, list):
        raise NoPlanError(f"{source} is no plan: it has no steps, as `pulumi preview --json` prints them")
    parsed = tuple(_parse_step(step, f"{source} is no plan: steps[{index}]") for index, step in enumerate(steps))
    return Plan(steps=parsed, same=_count_same(digest, parsed))


def find_failure(text: str) -> str | None:
    """Why a preview failed, in the words of the digest that Pulumi prints even then."""
    try:
        digest = json.loads(text)
    except (ValueError, RecursionError):
        return None
    errors = _list_errors(digest) if isinstance(digest, dict) else ()
    return errors[0] if errors else None


def _list_errors(digest: Json) -> tuple[str, ...]:
    diagnostics = digest.get("diagnostics") or []
    messages = (
        diagnostic.get("message")
        for diagnostic in (diagnostics if isinstance(diagnostics, list) else [])
        if isinstance(diagnostic, dict) and diagnostic.get("severity") == "error"
    )
    return tuple(_in_one_line(message) for message in messages if isinstance(message, str) and message.strip())


def _in_one_line(message: str) -> str:
    return " ".join(message.removeprefix("error: ").split())


def _count_same(digest: Json, steps: tuple[Step, ...]) -> int:
    summary = digest.get("changeSummary")
    counted = summary.get("same", 0) if isinstance(summary, dict) else None
    return counted if isinstance(counted, int) else sum(step.operation == "same" for step in steps)


def _parse_step(step: Any, place: str) -> Step:
    if not isinstance(step, dict):
        raise NoPlanError(f"{place} is not an object")
    operation, urn = step.get("op"), step.get("urn")
    if not isinstance(operation, str) or not isinstance(urn, str):
        raise NoPlanError(f"{place} has no operation (op) or no name (urn)")
    old, new = _object(step, "oldState", place), _object(step, "newState", place)
    return Step(
        operation=operation,
        urn=urn,
        type=_find_type(urn, new, old),
        old_inputs=_object(old, "inputs", f"{place}.oldState"),
        old_outputs=_object(old, "outputs", f"{place}.oldState"),
        new_inputs=_object(new, "inputs", f"{place}.newState"),
        differences=_parse_differences(step, place),
        diff_reasons=_texts(step, "diffReasons", place),
        replace_reasons=_texts(step, "replaceReasons", place),
    )


def _find_type(urn: str, *states: Json) -> str:
    for state in states:
        if isinstance(state.get("type"), str):
            return str(state["type"])
    parts = urn.split("::", 3)
    return parts[2].rpartition("$")[2] if len(parts) == 4 else ""


def _parse_differences(step: Json, place: str) -> dict[str, Difference] | None:
    if step.get("detailedDiff") is None:
        return None
    parsed: dict[str, Difference] = {}
    for path, entry in _object(step, "detailedDiff", place).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
            raise NoPlanError(f"{place}.detailedDiff: {path!r} has no kind")
        parsed[path] = Difference(kind=entry["kind"], is_of_inputs=entry.get("inputDiff") is True)
    return parsed


def _object(parent: Json, key: str, place: str) -> Json:
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise NoPlanError(f"{place}.{key} is not an object")
    return value


def _texts(parent: Json, key: str, place: str) -> tuple[str, ...]:
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise NoPlanError(f"{place}.{key} is not a list of texts")
    return tuple(value)
