"""Pulumi's property values as plain JSON: what the wire wraps (secrets, unknowns) is taken out and put back here;
places in them as Pulumi writes them (`metadata.labels["a/b"]`, `spec.ports[0].name`), which of them are secret, and
differences."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from google.protobuf import json_format, struct_pb2

from gpu_platform.domain.json_text import Json

Path = tuple[str | int, ...]

# The protocol's own constants: the key that marks a special value, and what kinds there are.
SIGNATURE_KEY = "4dabf18193072939515e22adb298388d"

SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 (a marker, not a password)
OUTPUT_SIGNATURE = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

UNKNOWN_TEXTS = frozenset(
    {
        UNKNOWN_TEXT,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # of a truth value
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # of a number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # of a list
        "030794c1-ac77-496b-92df-f27374a8bd58",  # of an asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # of an archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # of a map
    }
)

PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
NOTHING: Final = object()


class Unknown:
    """A value that only the update itself will know."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Properties:
    """A tree of plain JSON in which `UNKNOWN` may stand for any part, and the places in it that are secret."""

    tree: Json
    secrets: frozenset[Path] = frozenset()


def decode_properties(struct: struct_pb2.Struct) -> Properties:
    secrets: set[Path] = set()
    tree = {key: _decode(value, (key,), secrets) for key, value in json_format.MessageToDict(struct).items()}
    return Properties(tree, frozenset(secrets))


def encode_properties(properties: Properties) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update({key: _encode(value, (key,), properties.secrets) for key, value in properties.tree.items()})
    return struct


def contains_unknown(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(contains_unknown(each) for each in value.values())
    if isinstance(value, list):
        return any(contains_unknown(each) for each in value)
    return isinstance(value, Unknown)


def without_nulls(value: Any) -> Any:
    """A map's entries without a value are what a program did not say."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def _decode(value: Any, path: Path, secrets: set[Path]) -> Any:
    if isinstance(value, dict):
        return _decode_map(value, path, secrets)
    if isinstance(value, list):
        return [_decode(each, (*path, index), secrets) for index, each in enumerate(value)]
    if isinstance(value, str) and value in UNKNOWN_TEXTS:
        return UNKNOWN
    if isinstance(value, float) and value.is_integer():
        # The wire has only floats, and Kubernetes refuses 3.0 where it wants 3.
        return int(value)
    return value


def _decode_map(value: Json, path: Path, secrets: set[Path]) -> Any:
    signature = value.get(SIGNATURE_KEY)
    if signature == SECRET_SIGNATURE or (signature == OUTPUT_SIGNATURE and value.get("secret")):
        secrets.add(path)
    if signature in (SECRET_SIGNATURE, OUTPUT_SIGNATURE):
        return _decode(value["value"], path, secrets) if "value" in value else UNKNOWN
    return {key: _decode(each, (*path, key), secrets) for key, each in value.items()}


def _encode(value: Any, path: Path, secrets: frozenset[Path]) -> Any:
    match value:
        case dict():
            encoded: Any = {key: _encode(each, (*path, key), secrets) for key, each in value.items()}
        case list():
            encoded = [_encode(each, (*path, index), secrets) for index, each in enumerate(value)]
        case Unknown():
            encoded = UNKNOWN_TEXT
        case _:
            encoded = value
    return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": encoded} if path in secrets else encoded


def path_text(path: Path) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


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
