"""Places in a resource's properties, as Pulumi writes them: `metadata.labels["a/b"]`, `spec.ports[0].name`."""

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from gpu_platform.cli.plans.masking import SECRET, is_secret

Path = tuple[str | int, ...]

PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
# A quoted key, an index, or a plain key. Providers write keys with dots in quotes, so that a dot always ends a key.
STEP = re.compile(r'\["(?P<quoted>(?:[^"\\]|\\.)*)"\]|\[(?P<index>\d+)\]|\.?(?P<plain>[^.\[\]]+)')


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
