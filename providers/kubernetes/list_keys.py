"""By what the entries of a list are told apart: the API server says it in `metadata.managedFields`.

In `fieldsV1`, `f:name` is a field, `k:{"name":"x"}` the list entry with that key, `v:"x"` an entry of a set.
"""

import json
from typing import Any

Json = dict[str, Any]
Shape = tuple[str, ...]
"""A place without positions: `*` stands for any entry of a list."""

ANY_ENTRY = "*"


def find_list_keys(live: Json) -> dict[Shape, frozenset[str]]:
    """The lists whose entries have keys, with the names of the keys; other lists are one value as a whole."""
    keys: dict[Shape, frozenset[str]] = {}
    for entry in live.get("metadata", {}).get("managedFields", []):
        _collect(entry.get("fieldsV1", {}), (), keys)
    return keys


def find_entry(entries: list[Any], like: Json, keys: frozenset[str]) -> Any:
    """The entry with the same keys, as far as `like` says them; those left out have the server's defaults."""
    said = {key: like[key] for key in keys if key in like}
    return next((each for each in entries if isinstance(each, dict) and said.items() <= each.items()), None)


def _collect(fields: Json, shape: Shape, keys: dict[Shape, frozenset[str]]) -> None:
    for path, inner in fields.items():
        kind, _, name = path.partition(":")
        if kind == "f":
            _collect(inner, (*shape, name), keys)
        elif kind == "k":
            keys[shape] = frozenset(json.loads(name))
            _collect(inner, (*shape, ANY_ENTRY), keys)
