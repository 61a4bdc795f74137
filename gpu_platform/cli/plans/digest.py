"""Reads what `pulumi preview --json` prints: one object, Pulumi's PreviewDigest, with its property paths, and takes the
secrets out of it before anything else looks at them. Knows its form, and judges nothing."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gpu_platform.client import PlatformError
from gpu_platform.domain.json_text import Json

SECRET = "[secret]"  # noqa: S105 - Pulumi's own word for a value that it does not show

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key by which Pulumi marks an object that stands for something else: a secret, mostly. All are masked, because an
output with a secret inside has the same key."""

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Pulumi's sign for a value that is known only after the update."""

SECRET_KINDS = frozenset({"Secret", "SecretPatch", "SecretList"})
SECRET_FIELDS = frozenset({"data", "stringData"})

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Left by `kubectl apply`: the whole object once more, as a text."""

Path = tuple[str | int, ...]
PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")

# A quoted key, an index, or a plain key. Providers write keys with dots in quotes, so that a dot always ends a key.
STEP = re.compile(r'\["(?P<quoted>(?:[^"\\]|\\.)*)"\]|\[(?P<index>\d+)\]|\.?(?P<plain>[^.\[\]]+)')


def mask_properties(properties: Json, *, of_secret: bool) -> Json:
    """`of_secret`: of a Kubernetes Secret, whose content is secret although nobody marked it. The keys stay."""
    masked = {key: _mask_marked(value) for key, value in properties.items()}
    return _mask_fields(masked) if of_secret else masked


def is_secret(value: Any) -> bool:
    return isinstance(value, str) and value == SECRET


def is_unknown(value: Any) -> bool:
    return isinstance(value, str) and value == UNKNOWN


def _mask_marked(value: Any) -> Any:
    if isinstance(value, dict):
        return SECRET if SIGNATURE in value else {key: _mask_marked(inner) for key, inner in value.items()}
    return [_mask_marked(inner) for inner in value] if isinstance(value, list) else value


def _mask_fields(fields: Json) -> Json:
    return {key: _mask_field(key, value) for key, value in fields.items()}


def _mask_field(key: str, value: Any) -> Any:
    """At any depth: a SecretList has Secrets inside."""
    if key == LAST_APPLIED:
        return SECRET
    if key in SECRET_FIELDS:
        return dict.fromkeys(value, SECRET) if isinstance(value, dict) else SECRET
    if isinstance(value, dict):
        return _mask_fields(value)
    return [_mask_field("", inner) for inner in value] if isinstance(value, list) else value


class Absence(Enum):
    ABSENT = "absent"


ABSENT = Absence.ABSENT
"""No value at that place; null is a value."""


def parse_path(text: str) -> Path | None:
    """None for what is no path: it is then shown as it is."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = STEP.match(text, position)
        if match is None:
            return None
        if match["index"] is not None:
            steps.append(int(match["index"]))
        elif match["quoted"] is not None:
            steps.append(re.sub(r"\\(.)", r"\1", match["quoted"]))
        else:
            steps.append(match["plain"])
        position = match.end()
    return tuple(steps)


def path_text(path: Path) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text


def find_at(tree: Any, path: Path) -> Any:
    """The value there, ABSENT, or SECRET where the place is inside something secret."""
    for step in path:
        if is_secret(tree):
            return SECRET
        if isinstance(tree, dict) and isinstance(step, str):
            tree = tree.get(step, ABSENT)
        elif isinstance(tree, list) and isinstance(step, int):
            tree = tree[step] if step < len(tree) else ABSENT
        else:
            return ABSENT
    return tree


def list_leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value with its place. A list of plain values is one value: `["get","list"]` reads better than two lines."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from list_leaves(value, (*path, key))
    elif isinstance(tree, list) and any(isinstance(entry, dict | list) for entry in tree):
        for index, value in enumerate(tree):
            yield from list_leaves(value, (*path, index))
    else:
        yield path, tree


def find_differing(old: Any, new: Any, path: Path = ()) -> Iterator[Path]:
    """The places at which two trees differ, as deep as both have something."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from find_differing(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            yield from find_differing(find_at(old, (index,)), find_at(new, (index,)), (*path, index))
    # To Python, True is 1; to Kubernetes it is not.
    elif isinstance(old, bool) != isinstance(new, bool) or old != new:
        yield path


def overlaps(one: Path, other: Path) -> bool:
    """Whether one place is the other, or inside it."""
    length = min(len(one), len(other))
    return one[:length] == other[:length]


class NoPlanError(PlatformError):
    """What was given or came is no plan, or not a whole one."""


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
