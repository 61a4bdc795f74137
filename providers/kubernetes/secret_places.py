"""Which places of a tree are secret, when the tree is another one than that in which the secrets were marked."""

from collections.abc import Iterator
from typing import Any

from providers.kubernetes.property_values import Json, Path
from providers.kubernetes.type_tokens import ObjectType

ALWAYS_SECRET: dict[ObjectType, tuple[Path, ...]] = {
    ObjectType("v1", "Secret"): (
        ("data",),
        ("stringData",),
        # Left by `kubectl apply`: the whole object once more, as a text.
        ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"),
    ),
}

_NOTHING: Any = object()


def find_secrets(kind: ObjectType, marked: frozenset[Path], source: Json, target: Json) -> frozenset[Path]:
    """The secret places of `target`, given those of `source`; the same object, told by somebody else.

    Entries of a list may have moved. Where the value is not found in its old place, the whole list is secret.
    """
    moved = {path if _at(source, path) == _at(target, path) else _until_list(path) for path in marked}
    always = (path for path in ALWAYS_SECRET.get(kind, ()) if _at(target, path) is not _NOTHING)
    return frozenset({*moved, *always})


def without_inner(paths: frozenset[Path]) -> frozenset[Path]:
    """A secret inside a secret need not be marked again."""
    return frozenset(path for path in paths if not any(outer in paths for outer in _outer(path)))


def _until_list(path: Path) -> Path:
    place = next((index for index, step in enumerate(path) if isinstance(step, int)), len(path))
    return path[:place]


def _outer(path: Path) -> Iterator[Path]:
    return (path[:length] for length in range(1, len(path)))


def _at(tree: Any, path: Path) -> Any:
    for step in path:
        if isinstance(tree, dict) and isinstance(step, str):
            tree = tree.get(step, _NOTHING)
        elif isinstance(tree, list) and isinstance(step, int):
            tree = tree[step] if step < len(tree) else _NOTHING
        else:
            return _NOTHING
    return tree
