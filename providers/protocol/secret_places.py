"""Which places of a tree are secret, when the tree is another one than that in which the secrets were marked."""

from collections.abc import Iterator
from typing import Any, Final

from gpu_platform.pulumi_protocol.properties import Json, Path

NOTHING: Final = object()


def find_moved_secrets(marked: frozenset[Path], source: Json, target: Json) -> frozenset[Path]:
    """The secret places of `target`, given those of `source`; the same object, told by somebody else.

    Entries of a list may have moved. Where the value is not found in its old place, the whole list is secret.
    """
    return frozenset(path if value_at(source, path) == value_at(target, path) else _until_list(path) for path in marked)


def without_inner(paths: frozenset[Path]) -> frozenset[Path]:
    """A secret inside a secret need not be marked again."""
    return frozenset(path for path in paths if not any(outer in paths for outer in _outer(path)))


def value_at(tree: Any, path: Path) -> Any:
    """`NOTHING` where there is no such place."""
    for step in path:
        if isinstance(tree, dict) and isinstance(step, str):
            tree = tree.get(step, NOTHING)
        elif isinstance(tree, list) and isinstance(step, int):
            tree = tree[step] if step < len(tree) else NOTHING
        else:
            return NOTHING
    return tree


def _until_list(path: Path) -> Path:
    place = next((index for index, step in enumerate(path) if isinstance(step, int)), len(path))
    return path[:place]


def _outer(path: Path) -> Iterator[Path]:
    return (path[:length] for length in range(1, len(path)))
