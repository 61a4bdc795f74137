"""Check: a program's inputs made complete, or refused field by field, before anything is asked of the cluster."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpu_platform.pulumi_protocol.properties import Unknown, without_nulls
from providers.kubernetes.annotations import DELETION_PROPAGATION, PROPAGATIONS, TIMEOUT_SECONDS, read_annotations
from providers.kubernetes.object_names import AUTONAMED, Naming, build_name, is_autonamed, is_possible_name
from providers.kubernetes.type_tokens import parse_type_token, type_of_object
from providers.protocol.property_paths import path_text
from providers.protocol.resource import Failure

Json = dict[str, Any]

SERVERS_OWN_METADATA = frozenset(
    {"creationTimestamp", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)
"""A manifest copied from a cluster carries them; they are no wish of anybody."""

TEXT_MAPS = ("labels", "annotations")


@dataclass(frozen=True)
class Checked:
    inputs: Json
    failures: tuple[Failure, ...] = ()


def build_inputs(token: str, news: Json) -> Json:
    """What the program says, without what is not its own to say, and with the kind that its type means."""
    tree: Json = {key: value for key, value in without_nulls(news).items() if key != "status"}
    meant = type_of_object(tree, token)
    tree = {"apiVersion": meant.api_version, "kind": meant.kind, **tree}
    metadata = tree.get("metadata", {})
    if isinstance(metadata, dict):
        tree["metadata"] = {key: value for key, value in metadata.items() if key not in SERVERS_OWN_METADATA}
    return tree


def check_inputs(
    token: str, inputs: Json, old_inputs: Json, naming: Naming, namespaced: bool | None, default_namespace: str
) -> Checked:
    """`inputs` from `build_inputs`; `namespaced` is None while nobody knows the kind."""
    failures = tuple(_find_failures(token, inputs))
    metadata = inputs["metadata"]
    if failures or not isinstance(metadata, dict):
        return Checked(inputs, failures)
    if "name" not in metadata:
        if not naming.allowed:
            return Checked(inputs, (Failure("metadata.name", "give it a name: this project makes none up"),))
        metadata = _with_name(metadata, old_inputs, naming)
        if not is_possible_name(metadata["name"]):
            reason = f"no object can be called {metadata['name']!r}: name it yourself"
            return Checked(inputs, (Failure("metadata.name", reason),))
    if namespaced is True:
        metadata = {"namespace": default_namespace, **metadata}
    elif namespaced is False:
        metadata = {key: value for key, value in metadata.items() if key != "namespace"}
    return Checked({**inputs, "metadata": metadata})


def _with_name(metadata: Json, old_inputs: Json, naming: Naming) -> Json:
    name = old_inputs["metadata"]["name"] if is_autonamed(old_inputs) else build_name(naming)
    annotations = metadata.get("annotations", {})
    if isinstance(annotations, dict):
        annotations = {**annotations, AUTONAMED: "true"}
    return {**metadata, "name": name, "annotations": annotations}


def _find_failures(token: str, inputs: Json) -> Iterator[Failure]:
    meant = parse_type_token(token)
    for name in ("apiVersion", "kind"):
        if not isinstance(inputs[name], str):
            yield Failure(name, "must be a text that is known before the update")
    if meant.kind.endswith("Patch") and inputs["kind"] == meant.kind.removesuffix("Patch"):
        yield Failure("kind", f"the stand-in plugin has no {meant.kind}: declare the whole {inputs['kind']}")
    if "items" in inputs and meant.kind.endswith("List"):
        yield Failure("items", f"the stand-in plugin has no {meant.kind}: declare its items one by one")
    metadata = inputs["metadata"]
    if isinstance(metadata, dict):
        yield from _find_metadata_failures(inputs, metadata)
    elif not isinstance(metadata, Unknown):
        yield Failure("metadata", "must be a map")


def _find_metadata_failures(inputs: Json, metadata: Json) -> Iterator[Failure]:
    for field in ("name", "namespace"):
        value = metadata.get(field, UNSAID)
        if not isinstance(value, Unknown) and not (isinstance(value, str) and is_possible_name(value)):
            yield Failure(f"metadata.{field}", f"no object can have the {field} {value!r}")
    if "generateName" in metadata:
        yield Failure("metadata.generateName", "leave it out: a resource without a name gets one made from its own")
    for field in TEXT_MAPS:
        entries = metadata.get(field, {})
        if not isinstance(entries, dict | Unknown):
            yield Failure(f"metadata.{field}", "must be a map of texts")
        for key, value in entries.items() if isinstance(entries, dict) else ():
            if not isinstance(value, str | Unknown):
                yield Failure(path_text(("metadata", field, key)), f"must be a text, not {value!r}: quote it")
    annotations = read_annotations(inputs)
    timeout, policy = annotations.get(TIMEOUT_SECONDS, "1"), annotations.get(DELETION_PROPAGATION, "orphan")
    if isinstance(timeout, str) and not timeout.isdigit():
        yield Failure(path_text(("metadata", "annotations", TIMEOUT_SECONDS)), "must be a whole number of seconds")
    if isinstance(policy, str) and policy.lower() not in PROPAGATIONS:
        reason = f"must be one of {', '.join(PROPAGATIONS)}"
        yield Failure(path_text(("metadata", "annotations", DELETION_PROPAGATION)), reason)


UNSAID = "unsaid"
"""A possible name, for a field that is not there."""
