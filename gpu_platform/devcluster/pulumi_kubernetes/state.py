"""A live object seen through a program's inputs: what the inputs would have to say to mean what is there now.

The API server changes what it is given without changing what it means: `1000m` becomes `1`, `stringData` becomes
`data`, lists get defaults. So a field differs only where a dry run of the inputs would change it. Where no dry run is
to be had, the live value counts as it is.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from gpu_platform.devcluster.pulumi_kubernetes.inputs import SERVERS_OWN_METADATA
from providers.kubernetes.list_keys import ANY_ENTRY, Shape, find_entry, find_list_keys
from providers.kubernetes.ownership import APPLIED_BY

Json = dict[str, Any]

_ABSENT: Any = object()


def observe_inputs(inputs: Json, live: Json, applied: Json | None) -> Json:
    """The inputs as they would be if they had caused `live`; only what they say already, nothing that others add.

    `applied` is the server's answer to a dry run of `inputs`, or None.

    | input | live | dry run | becomes |
    |---|---|---|---|
    | any | as in the dry run | | the input: the server means the same |
    | value | other value | not so | the live value |
    | value | absent | present | absent: somebody removed it |
    | value | absent | absent | the input: the server keeps it elsewhere |
    | map | map | | field by field, those of the input |
    | list with keys | list | | entry by entry, those of the input, in its order |
    | other list | other list | not so | the live list |
    """
    seen: Json = _Walk(find_list_keys(live)).observe(inputs, live, applied, ())
    return _with_secret_texts(inputs, seen, live) if live.get("kind") == "Secret" else seen


def build_imported_inputs(live: Json) -> Json:
    """For an object that no program has declared yet: everything except what only the server and we say."""
    metadata = {
        key: value
        for key, value in live["metadata"].items()
        if key not in SERVERS_OWN_METADATA and key not in ("annotations", "ownerReferences")
    }
    annotations = {key: value for key, value in live["metadata"].get("annotations", {}).items() if key != APPLIED_BY}
    if annotations:
        metadata["annotations"] = annotations
    return {**{key: value for key, value in live.items() if key != "status"}, "metadata": metadata}


@dataclass(frozen=True)
class _Walk:
    list_keys: dict[Shape, frozenset[str]]

    def observe(self, said: Any, live: Any, applied: Any, shape: Shape) -> Any:
        if live == (said if applied is None else applied):
            return said
        if isinstance(said, dict) and isinstance(live, dict):
            return self._observe_map(said, live, applied, shape)
        if isinstance(said, list) and isinstance(live, list):
            return self._observe_list(said, live, applied, shape)
        return live

    def _observe_map(self, said: Json, live: Json, applied: Any, shape: Shape) -> Json:
        seen: Json = {}
        for key, value in said.items():
            means = applied.get(key, _ABSENT) if isinstance(applied, dict) else None
            if key in live:
                seen[key] = self.observe(value, live[key], None if means is _ABSENT else means, (*shape, key))
            elif means is _ABSENT:
                seen[key] = value
        return seen

    def _observe_list(self, said: list[Any], live: list[Any], applied: Any, shape: Shape) -> list[Any]:
        inside = (*shape, ANY_ENTRY)
        means = applied if isinstance(applied, list) else []
        if keys := self.list_keys.get(shape):
            found = ((each, find_entry(live, each, keys), find_entry(means, each, keys)) for each in said)
            return [self.observe(each, there, meant, inside) for each, there, meant in found if there is not None]
        if len(said) != len(live):
            return live
        aligned = means if len(means) == len(said) else [None] * len(said)
        return [self.observe(*each, inside) for each in zip(said, live, aligned, strict=True)]


def _with_secret_texts(inputs: Json, seen: Json, live: Json) -> Json:
    """`stringData` is written and never read: what it said stands in `data`, as base64."""
    texts, data = inputs.get("stringData"), live.get("data") or {}
    if not isinstance(texts, dict):
        return seen
    now = {key: _decoded(data[key]) for key in texts if key in data}
    return {**seen, "stringData": now}


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text
