"""What is different between the inputs that were and the inputs that are wanted, place by place."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

from gpu_platform.pulumi_protocol.properties import Path, Unknown


class Change(Enum):
    ADD = "add"
    DELETE = "delete"
    UPDATE = "update"


def find_changes(old: Any, new: Any) -> dict[Path, Change]:
    """Each place once, as deep as both sides have something; an unknown value counts as another one.

    | old | new | change |
    |---|---|---|
    | absent | present | ADD at that place |
    | present | absent | DELETE at that place |
    | map and map, list and list | | the changes inside; a longer list has ADDs at its end, a shorter one DELETEs |
    | anything | unknown | UPDATE |
    | different values or kinds of values | | UPDATE |
    """
    return dict(_changes(old, new, ()))


def _changes(old: Any, new: Any, path: Path) -> Iterator[tuple[Path, Change]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in new:
                yield (*path, key), Change.DELETE
            elif key not in old:
                yield (*path, key), Change.ADD
            else:
                yield from _changes(old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index >= len(new):
                yield (*path, index), Change.DELETE
            elif index >= len(old):
                yield (*path, index), Change.ADD
            else:
                yield from _changes(old[index], new[index], (*path, index))
    elif not _are_equal(old, new):
        yield path, Change.UPDATE


def _are_equal(old: Any, new: Any) -> bool:
    if isinstance(old, Unknown) or isinstance(new, Unknown):
        return False
    # To Python, True is 1; to Kubernetes it is not.
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)
