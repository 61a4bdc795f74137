"""What a plan changes, resource by resource: the one list that every output and rule goes by. Secrets are gone."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpu_platform.cli.plans.digest import (
    ABSENT,
    SECRET,
    SECRET_KINDS,
    Path,
    Plan,
    Step,
    find_at,
    find_differing,
    is_secret,
    is_unknown,
    list_leaves,
    mask_properties,
    overlaps,
    parse_path,
    path_text,
)
from gpu_platform.domain.json_text import Json

COUNTED = ("create", "update", "replace", "delete")
# What takes something away comes first: where the output is cut, it must not be what is missing.
ORDER = ("delete", "replace", "update", "create")

UNCHANGING = frozenset(
    {
        "same",
        "read",
        "read-replacement",
        "refresh",
        "discard",
        "discard-replaced",
        "remove-pending-replace",
        "diff",
        "extend-parameterize",
    }
)
"""Operations that change Pulumi's own record at most."""

IDENTITY: tuple[Path, ...] = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))
"""Said by the row's kind and name already."""


@dataclass(frozen=True)
class PropertyChange:
    path: str
    old: Any
    new: Any
    """ABSENT where there is none."""

    replaces: bool = False
    """Whether this is why the resource is replaced."""


@dataclass(frozen=True)
class Change:
    operation: str
    kind: str
    name: str
    urn: str
    properties: tuple[PropertyChange, ...]
    new_inputs: Json
    """Empty for what is deleted."""


@dataclass(frozen=True)
class Changes:
    listed: tuple[Change, ...]
    counts: dict[str, int]


def build_changes(plan: Plan) -> Changes:
    changes = [_build_change(step) for step in _merge_replacements(plan.steps)]
    found = Counter(change.operation for change in changes)
    others = sorted(operation for operation in found if operation not in COUNTED)
    counts = {operation: found[operation] for operation in (*COUNTED, *others)}
    ranks = {operation: rank for rank, operation in enumerate((*ORDER, *others))}
    return Changes(
        listed=tuple(sorted(changes, key=lambda change: ranks[change.operation])), counts={**counts, "same": plan.same}
    )


def _merge_replacements(steps: Iterable[Step]) -> Iterator[Step]:
    """One step per resource.

    | steps of one resource | becomes |
    |---|---|
    | replace, and the two that it consists of (`--show-replacement-steps`) | replace |
    | create-replacement, import-replacement without replace | replace |
    | delete-replaced alone: left over from an update that broke off | delete |
    """
    listed = [step for step in steps if step.operation not in UNCHANGING]
    replaced = {step.urn for step in listed if step.operation == "replace"}
    renewed = {step.urn for step in listed if step.operation in ("create-replacement", "import-replacement")}
    for step in listed:
        if step.operation in ("create-replacement", "import-replacement"):
            if step.urn not in replaced:
                yield _as("replace", step)
        elif step.operation == "delete-replaced":
            if step.urn not in replaced | renewed:
                yield _as("delete", step)
        else:
            yield step


def _as(operation: str, step: Step) -> Step:
    return Step(**{**vars(step), "operation": operation})


def _build_change(step: Step) -> Change:
    kind = _find_kind(step)
    of_secret = kind in SECRET_KINDS or step.type.rpartition(":")[2] in SECRET_KINDS
    old, outputs, new = (
        mask_properties(properties, of_secret=of_secret)
        for properties in (step.old_inputs, step.old_outputs, step.new_inputs)
    )
    return Change(
        operation=step.operation,
        kind=kind,
        name=_find_name(step.urn, new) if new else _find_name(step.urn, old),
        urn=step.urn,
        properties=tuple(_build_properties(step, old, outputs, new)),
        new_inputs={} if step.operation == "delete" else new,
    )


def _find_kind(step: Step) -> str:
    if step.type.startswith("pulumi:providers:"):
        return "Provider"
    kind = (step.new_inputs or step.old_inputs).get("kind")
    said = isinstance(kind, str) and step.type.startswith("kubernetes:") and not is_secret(kind)
    return str(kind) if said else step.type.rpartition(":")[2] or "unknown"


def _find_name(urn: str, inputs: Json) -> str:
    """`namespace/name` as the cluster has it; Helm releases say theirs at the top; else the name in the program."""
    for place in (inputs.get("metadata"), inputs):
        if isinstance(place, dict) and _is_text(name := place.get("name")):
            namespace = place.get("namespace")
            return f"{namespace}/{name}" if _is_text(namespace) else str(name)
    return urn.split("::", 3)[-1]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and not is_secret(value) and not is_unknown(value)


def _build_properties(step: Step, old: Json, outputs: Json, new: Json) -> Iterator[PropertyChange]:
    if step.operation == "delete":
        return
    if not old and not outputs:
        yield from _build_declared(new)
        return
    found = tuple(_build_differences(step, old, outputs, new))
    yield from found
    # Without details a changed secret looks the same on both sides; and a reason may be no property at all.
    reasons = step.replace_reasons if step.differences else (*step.diff_reasons, *step.replace_reasons)
    told = [parse_path(change.path) or (change.path,) for change in found]
    for reason in dict.fromkeys(reasons):
        path = parse_path(reason) or (reason,)
        if not any(overlaps(path, other) for other in told):
            yield _compare(path, old, new, replaces=reason in step.replace_reasons)


def _build_declared(new: Json) -> Iterator[PropertyChange]:
    """What a new resource says of itself, its labels last."""
    leaves = [(path, value) for path, value in list_leaves(new) if path and path not in IDENTITY]
    for path, value in sorted(leaves, key=lambda leaf: leaf[0][0] == "metadata"):
        yield PropertyChange(path_text(path), ABSENT, value)


def _build_differences(step: Step, old: Json, outputs: Json, new: Json) -> Iterator[PropertyChange]:
    reasons = [parse_path(reason) or (reason,) for reason in step.replace_reasons]
    if step.differences is None:
        for path in find_differing(old, new):
            yield _compare(path, old, new, replaces=any(overlaps(path, reason) for reason in reasons))
        return
    for text, difference in sorted(step.differences.items()):
        path = parse_path(text) or (text,)
        before = old if difference.is_of_inputs or find_at(outputs, path) is ABSENT else outputs
        replaces = difference.replaces or path in reasons
        yield _compare(path, before, new, replaces=replaces)


def _compare(path: Path, old: Json, new: Json, *, replaces: bool) -> PropertyChange:
    before, after = find_at(old, path), find_at(new, path)
    # What was secret on one side is, most likely, the same text on the other.
    if is_secret(before) and after is not ABSENT:
        after = SECRET
    if is_secret(after) and before is not ABSENT:
        before = SECRET
    return PropertyChange(path_text(path), before, after, replaces)
