"""What a resource wants, what an object says, and one in the form of the other. Pure."""

import hashlib
from dataclasses import dataclass

from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, read_json
from gpu_platform.domain.stacks import StackKind, accepted_hash
from gpu_platform.domain.tenants import tenant_of
from gpu_platform.domain.units import GPUUnitSpec, accepted_text, source_annotations, source_labels
from gpu_platform.domain.value import Value
from gpu_platform.pulumi_protocol.properties import (
    UNKNOWN,
    Properties,
    Unknown,
    contains_unknown,
    find_moved_secrets,
    without_inner,
)
from gpu_platform.pulumi_protocol.resource import Observed, Resource
from providers.cluster.kinds import PROVENANCE, Kind, build_id

OWN_PROJECTS = frozenset(StackKind)
"""Of the platform's own stacks, which record what was accepted and own nothing."""


@dataclass(frozen=True)
class Wanted:
    """The object that a resource declares, once all of it is known."""

    kind: Kind
    namespace: str | None
    name: str
    spec: Value
    operation_id: str
    request_hash: str | None
    owner: str | None
    """The stack that declares it; None for the platform's own."""

    object_uid: str | None = None
    """The one that was there last, whose end somebody may have asked for."""

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.kind.name} {build_id(self.namespace, self.name)}"

    @property
    def tenant(self) -> str:
        return tenant_of(self.namespace or "") or ""

    @property
    def runs(self) -> bool:
        """Whether it needs GPUs, which stock holds."""
        return isinstance(self.spec, GPUUnitSpec) and self.spec.running


def build_wanted(kind: Kind, resource: Resource, inputs: Json) -> Wanted:
    return Wanted(
        kind,
        kind.namespace_of(inputs),
        inputs["name"],
        kind.model.model_validate(inputs["spec"]),
        inputs.get("operationID") or derived_operation_id(resource.urn),
        inputs.get("requestHash"),
        owner_of(resource),
        inputs.get("objectUID"),
    )


def owner_of(resource: Resource) -> str | None:
    return None if resource.project in OWN_PROJECTS else f"{resource.project}/{resource.stack}"


def derived_operation_id(urn: str) -> str:
    """For an object that comes of no request: the same each time that the resource is made."""
    return f"pulumi-{hashlib.sha256(urn.encode()).hexdigest()[:40]}"


def build_object(wanted: Wanted, stock: Json | None) -> Json:
    """The object with what was accepted and where it comes from; with `stock`, a unit in the place of that."""
    annotations = {names.ANNOTATION_OPERATION_ID: wanted.operation_id}
    if wanted.request_hash:
        annotations[names.ANNOTATION_REQUEST_HASH] = wanted.request_hash
    if wanted.kind.has_accepted_spec:
        annotations[names.ANNOTATION_ACCEPTED_SPEC] = accepted_text(wanted.spec)
    if wanted.owner:
        annotations[names.ANNOTATION_OWNER_STACK] = wanted.owner
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE}
    if stock is not None:
        annotations |= source_annotations(stock)
        labels |= source_labels(stock)
    metadata: Json = {"name": wanted.name, "labels": labels, "annotations": annotations}
    if wanted.namespace:
        metadata["namespace"] = wanted.namespace
    if wanted.kind.finalizers:
        metadata["finalizers"] = list(wanted.kind.finalizers)
    return {
        "apiVersion": names.API_VERSION,
        "kind": wanted.kind.name,
        "metadata": metadata,
        "spec": wanted.spec.to_json(),
    }


def build_changed(wanted: Wanted, live: Json) -> Json:
    """The object with the wanted spec, accepted; all else as it was seen."""
    annotations = annotations_of(live)
    if wanted.kind.has_accepted_spec:
        annotations = {**annotations, names.ANNOTATION_ACCEPTED_SPEC: accepted_text(wanted.spec)}
    metadata = {**live["metadata"], "annotations": annotations}
    return {**live, "metadata": metadata, "spec": wanted.spec.to_json()}


def live_spec_of(kind: Kind, live: Json) -> Value:
    """ValidationError for what only a newer version can read."""
    return kind.model.model_validate(live["spec"])


def accepted_spec_of(kind: Kind, live: Json) -> Value | None:
    """The accepted spec; None for an object that the API did not accept, and for a spec that cannot be read."""
    if not kind.has_accepted_spec:
        return live_spec_of(kind, live)
    spec = read_json(live, names.ANNOTATION_ACCEPTED_SPEC)
    try:
        return kind.model.model_validate(spec) if isinstance(spec, dict) else None
    except ValidationError:
        return None


def accepted_hash_of(kind: Kind, live: Json) -> str:
    """Empty for an object that nobody accepted."""
    if not kind.has_accepted_spec:
        return accepted_hash(accepted_text(live_spec_of(kind, live)))
    text = annotations_of(live).get(names.ANNOTATION_ACCEPTED_SPEC)
    return accepted_hash(text) if text is not None else ""


def observe_object(kind: Kind, live: Json, inputs: Properties) -> Observed:
    """The object as it is now. `inputs` are those that the program has said; of an import there are none yet."""
    metadata = live["metadata"]
    namespace, name = metadata.get("namespace"), metadata["name"]
    tree: Json = {"tenant": tenant_of(namespace or "")} if kind.is_of_tenant else {}
    tree |= {"name": name, "spec": live_spec_of(kind, live).to_json()}
    tree |= _read_provenance(live) if not inputs.tree else _provenance_of(inputs.tree)
    secrets = without_inner(find_moved_secrets(inputs.secrets, inputs.tree, tree))
    seen = Properties(tree, secrets)
    return Observed(build_id(namespace, name), build_outputs(kind, live, seen), seen)


def build_outputs(kind: Kind, live: Json, inputs: Properties) -> Properties:
    """Nothing that changes by itself, such as the status: a refresh is to show what somebody has changed."""
    known = {"uid": live["metadata"]["uid"], "acceptedHash": accepted_hash_of(kind, live)}
    return Properties({**inputs.tree, **_place_of(kind, inputs.tree), **known}, inputs.secrets)


def build_planned_outputs(kind: Kind, inputs: Properties, outputs: Json | None = None) -> Properties:
    """As far as a preview can know them; `outputs` are those of the object as it is, if it exists."""
    tree = inputs.tree
    is_known = not contains_unknown(tree["spec"])
    known = {
        "uid": (outputs or {}).get("uid", UNKNOWN),
        "acceptedHash": accepted_hash(accepted_text(kind.model.model_validate(tree["spec"]))) if is_known else UNKNOWN,
    }
    return Properties({**tree, **_place_of(kind, tree), **known}, inputs.secrets)


def _place_of(kind: Kind, inputs: Json) -> Json:
    if not kind.path.namespaced:
        return {}
    return {"namespace": UNKNOWN if isinstance(inputs.get("tenant"), Unknown) else kind.namespace_of(inputs)}


def _provenance_of(inputs: Json) -> Json:
    return {key: inputs[key] for key in PROVENANCE if key in inputs}


def _read_provenance(live: Json) -> Json:
    annotations = annotations_of(live)
    said = {
        "operationID": annotations.get(names.ANNOTATION_OPERATION_ID),
        "requestHash": annotations.get(names.ANNOTATION_REQUEST_HASH),
    }
    return {key: value for key, value in said.items() if value}
