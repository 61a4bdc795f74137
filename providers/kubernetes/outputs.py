"""What Pulumi keeps of an object: the live object, and how we came to it.

The names with two underscores are the official plugin's own, so that either plugin can go on with the other's state.
"""

from typing import Any

from gpu_platform.pulumi_protocol.properties import UNKNOWN, Json, Properties, prefixed
from providers.kubernetes.ownership import field_manager_name
from providers.kubernetes.secret_kinds import find_secrets
from providers.kubernetes.type_tokens import ObjectType
from providers.protocol.secret_places import without_inner

INPUTS = "__inputs"
FIELD_MANAGER = "__fieldManager"
INITIAL_API_VERSION = "__initialApiVersion"

KNOWN_LATER = ("creationTimestamp", "generation", "resourceVersion", "uid")

GIVEN_BY_SERVER = {
    ("", "PersistentVolumeClaim"): ("volumeName",),
    ("", "Service"): ("clusterIP", "clusterIPs"),
}
"""Fields of the spec that programs pass on, also where a dry run is refused because the namespace is not there yet."""


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
    secrets = find_secrets(kind, inputs.secrets, inputs.tree, tree)
    history = {INPUTS: inputs.tree, INITIAL_API_VERSION: kind.api_version, FIELD_MANAGER: manager}
    return Properties({**tree, **history}, without_inner(secrets | frozenset(prefixed(inputs.secrets, INPUTS))))


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
