"""What Pulumi's state keeps of an object: its outputs, and its inputs as they would read if the program had declared
what is live; whose the fields are, and which values are secret.

The API server changes what it is given without changing what it means: `1000m` becomes `1`, `stringData` becomes
`data`, lists get defaults. So a field differs only where a dry run of the inputs would change it. Where no dry run is
possible, the live value counts as it is.
"""

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from gpu_platform.devcluster.pulumi_kubernetes.inputs import SERVERS_OWN_METADATA, ObjectType
from gpu_platform.domain.json_text import Json
from gpu_platform.pulumi_protocol.properties import (
    NOTHING,
    UNKNOWN,
    Path,
    Properties,
    find_moved_secrets,
    value_at,
    without_inner,
)

ALWAYS_SECRET: dict[ObjectType, tuple[Path, ...]] = {
    ObjectType("v1", "Secret"): (
        ("data",),
        ("stringData",),
        # Left by `kubectl apply`: the whole object once more, as a text.
        ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"),
    ),
}

APPLIED_BY = "pulumi.com/applied-by"
"""An annotation with the manager's name, on every object. The API server remembers a manager only by the fields that
it has set, and a ConfigMap or Namespace with nothing but a name would have none."""

INPUTS = "__inputs"
FIELD_MANAGER = "__fieldManager"
INITIAL_API_VERSION = "__initialApiVersion"
KNOWN_LATER = ("creationTimestamp", "generation", "resourceVersion", "uid")

GIVEN_BY_SERVER = {
    ("", "PersistentVolumeClaim"): ("volumeName",),
    ("", "Service"): ("clusterIP", "clusterIPs"),
}
"""Fields of the spec that programs pass on, also where a dry run is refused because the namespace is not there yet."""

Shape = tuple[str, ...]
"""A place without positions: `*` stands for any entry of a list."""

ANY_ENTRY = "*"
_ABSENT: Any = object()


def find_secrets(kind: ObjectType, marked: frozenset[Path], source: Json, target: Json) -> frozenset[Path]:
    """The secret places of `target`, given those that are marked in `source`."""
    always = (path for path in ALWAYS_SECRET.get(kind, ()) if value_at(target, path) is not NOTHING)
    return find_moved_secrets(marked, source, target).union(always)


def field_manager_name(urn: str) -> str:
    """One manager per resource of a program, so that an object that exists already can be told from one of ours."""
    return f"pulumi-kubernetes-{hashlib.sha256(urn.encode()).hexdigest()[:10]}"


def build_body(inputs: Json, namespace: str | None, manager: str) -> Json:
    """What is sent to the API server for these inputs, all of which are known."""
    metadata = {key: value for key, value in inputs["metadata"].items() if key != "namespace"}
    metadata["annotations"] = {**metadata.get("annotations", {}), APPLIED_BY: manager}
    if namespace:
        metadata["namespace"] = namespace
    return {**inputs, "metadata": metadata}


def is_managed_by(live: Json, manager: str) -> bool:
    entries = live["metadata"].get("managedFields", [])
    return any(each.get("manager") == manager and each.get("operation") == "Apply" for each in entries)


def build_outputs(kind: ObjectType, live: Json, inputs: Properties, manager: str) -> Properties:
    metadata = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    return _with_history(kind, {**live, "metadata": metadata}, inputs, manager)


def build_planned_outputs(kind: ObjectType, inputs: Properties, manager: str, rehearsed: Json | None) -> Properties:
    """Of an object that does not exist yet: as declared, and unknown where the API server has the say.

    `rehearsed` is the answer to a dry run, or None. Its own values are not taken: an address that it hands out is not
    the one that the object will get.
    """
    tree: Json = {**_with_unknowns(inputs.tree, rehearsed), "status": UNKNOWN}
    if isinstance(tree["metadata"], dict):
        metadata = {key: value for key, value in tree["metadata"].items() if key != "managedFields"}
        tree["metadata"] = {**metadata, **dict.fromkeys(KNOWN_LATER, UNKNOWN)}
    if isinstance(tree.get("spec"), dict):
        tree["spec"] = {**dict.fromkeys(GIVEN_BY_SERVER.get((kind.group, kind.kind), ()), UNKNOWN), **tree["spec"]}
    return _with_history(kind, tree, inputs, manager)


def build_changed_outputs(kind: ObjectType, outputs: Json, inputs: Properties, manager: str) -> Properties:
    """Of an object that exists, where a dry run cannot say what it would become: the new inputs over the old object."""
    live = {key: value for key, value in outputs.items() if not key.startswith("__")}
    return _with_history(kind, _overlay(live, inputs.tree), inputs, manager)


def find_manager(outputs: Json, urn: str) -> str:
    """The one that made the object, also after the resource got another name in the program."""
    return str(outputs.get(FIELD_MANAGER) or field_manager_name(urn))


def _with_history(kind: ObjectType, tree: Json, inputs: Properties, manager: str) -> Properties:
    secrets = find_secrets(kind, inputs.secrets, inputs.tree, tree).union((INPUTS, *path) for path in inputs.secrets)
    history = {INPUTS: inputs.tree, INITIAL_API_VERSION: kind.api_version, FIELD_MANAGER: manager}
    return Properties({**tree, **history}, without_inner(secrets))


def _with_unknowns(said: Any, rehearsed: Any) -> Any:
    if isinstance(said, dict) and isinstance(rehearsed, dict):
        known = {key: _with_unknowns(value, rehearsed.get(key)) for key, value in said.items()}
        return {**dict.fromkeys(rehearsed, UNKNOWN), **known}
    if isinstance(said, list) and isinstance(rehearsed, list) and len(said) == len(rehearsed):
        return [_with_unknowns(*each) for each in zip(said, rehearsed, strict=True)]
    return said


def _overlay(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _overlay(below.get(key), value) for key, value in above.items()}}
    return above


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


def observe_inputs(inputs: Json, live: Json, applied: Json | None) -> Json:
    """The inputs as they would be if they had caused `live`; only what they say already, nothing that others add.

    `applied` is the server's answer to a dry run of `inputs`, or None.

    | input | live | dry run | becomes |
    |---|---|---|---|
    | any | as in the dry run | | the input: the server means the same |
    | value | other value | not so | the live value |
    | value | absent | present | absent: another writer removed it |
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
