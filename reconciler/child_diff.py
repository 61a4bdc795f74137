"""Compares the objects that a custom resource owns (its children) with what they should be, without asking the API
server, and plans the writes that make them so. Pure; `guarded_writes` carries these out.

Desired objects say only what we mean; live ones also carry defaults. So an object is as it should be when every
field that we set has our value, and nobody else has set a field of its spec that we do not set. Who set what, the API
server itself records in `managedFields`. There, defaults count as ours, so that a field which we no longer set looks
like one of them: which ones we set, an annotation remembers.
"""

import hashlib
import json
from enum import StrEnum
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube.paths import PATH_OF_KIND
from reconciler.guarded_writes import FIELD_MANAGER, CreateObject, DeleteObject, ObjectWrite, ReplaceObject

ALLOCATED_FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
"""Of a Service: given by the API server at its creation, and it must be told the same again."""


class UnitChild(StrEnum):
    NETWORK_POLICY = "NetworkPolicy"
    SERVICE = "Service"
    CONFIG_MAP = "ConfigMap"
    INGRESS = "Ingress"
    HTTP_ROUTE = "HTTPRoute"
    DEPLOYMENT = "Deployment"


class StorageChild(StrEnum):
    """In the order in which they are made: no pod may ever run without the policy."""

    CLAIM = "PersistentVolumeClaim"
    NETWORK_POLICY = "NetworkPolicy"
    JOB = "Job"
    SERVICE = "Service"
    DEPLOYMENT = "Deployment"
    POD = "Pod"
    """Made by others; removed where those left it."""


POD_IP: Json = {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
"""The variable of a container with its pod's address."""


def build_child(kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": PATH_OF_KIND[kind].api_version, "kind": kind, "metadata": metadata, "spec": spec}


def build_child_deployment(metadata: Json, labels: Json, template: Json, replicas: int = 1) -> Json:
    """Returns a Deployment of at most one pod at a time, which is selected by these labels: a rolling update would need
    a second set of GPUs, and a second pod could not have the volume before the first one is gone."""
    spec = {
        "replicas": replicas,
        "revisionHistoryLimit": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return build_child("Deployment", metadata, spec)


def note_fields(desired: Json) -> Json:
    """The same, with the annotation that remembers which fields of its spec are set. Not what they say: that is
    compared, and a Deployment's controller copies the annotation to its ReplicaSet, with a write when it changes."""
    if "spec" not in desired:
        return desired
    shape = json.dumps(_shape_of(desired["spec"]), sort_keys=True, separators=(",", ":"))
    noted = {names.ANNOTATION_FIELDS: hashlib.sha256(shape.encode()).hexdigest()[:10]}
    metadata = desired["metadata"]
    return {**desired, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **noted}}}


def _shape_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape_of(inner) for key, inner in value.items()}
    return [_shape_of(entry) for entry in value] if isinstance(value, (list, tuple)) else None


def is_as_desired(desired: Json, live: Json) -> bool:
    metadata = {key: desired["metadata"][key] for key in ("labels", "ownerReferences")}
    if not _contains(live["metadata"], metadata) or _annotations_differ(desired, live):
        return False
    if "data" in desired:
        # Of a ConfigMap there are no defaults: it is what we say, or it is not.
        return bool(live.get("data") == desired["data"] and not live.get("binaryData"))
    return _contains(live["spec"], desired["spec"]) and not _has_foreign_spec_fields(desired, live)


def build_replacement(desired: Json, live: Json) -> Json:
    """The body that makes `live` what it should be, and fails if it changed since it was seen."""
    metadata = {key: value for key, value in live["metadata"].items() if key not in ("managedFields", "annotations")}
    metadata["labels"] = {**metadata.get("labels", {}), **desired["metadata"]["labels"]}
    metadata["ownerReferences"] = desired["metadata"]["ownerReferences"]
    wanted = desired["metadata"].get("annotations", {})
    dropped = own_annotations(live) - wanted.keys()
    kept = {key: value for key, value in live["metadata"].get("annotations", {}).items() if key not in dropped}
    if kept or wanted:
        metadata["annotations"] = {**kept, **wanted}
    if "data" in desired:
        return {**desired, "metadata": metadata}
    allocated = {key: live["spec"][key] for key in ALLOCATED_FIELDS if key in live["spec"]}
    return {**desired, "metadata": metadata, "spec": {**allocated, **desired["spec"]}}


def _annotations_differ(desired: Json, live: Json) -> bool:
    """Others may have theirs: controllers remember things there."""
    wanted = desired["metadata"].get("annotations", {})
    there = live["metadata"].get("annotations", {})
    return not _contains(there, wanted) or not own_annotations(live) <= wanted.keys()


def own_annotations(live: Json) -> set[str]:
    """The annotations that we have set. Of one that another writer has changed since, we are no longer the owner."""
    return {
        path.removeprefix("f:")
        for entry in live["metadata"].get("managedFields", [])
        if entry.get("manager") == FIELD_MANAGER
        for path in entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        if path != "."
    }


def _contains(live: Any, desired: Any) -> bool:
    """Whether every field of `desired` has its value in `live`; lists must agree entry by entry."""
    # The concrete types that JSON gives: this runs for every field of every pass, and asking for the abstract ones is
    # five times as slow.
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            key in live and _contains(live[key], value) for key, value in desired.items()
        )
    if isinstance(desired, (list, tuple)):
        return (
            isinstance(live, (list, tuple))
            and len(live) == len(desired)
            and all(_contains(here, there) for here, there in zip(live, desired, strict=True))
        )
    return bool(live == desired)


def _has_foreign_spec_fields(desired: Json, live: Json) -> bool:
    return any(
        entry.get("manager") != FIELD_MANAGER
        and _adds_fields(entry.get("fieldsV1", {}).get("f:spec", {}), desired["spec"])
        for entry in live["metadata"].get("managedFields", [])
    )


def has_foreign_template_fields(live: Json) -> bool:
    """Whether another writer has set a field of the pod template, and we have not set it to the same value."""
    ours: list[Json] = []
    theirs: list[Json] = []
    for entry in live["metadata"].get("managedFields", []):
        fields = entry.get("fieldsV1", {}).get("f:spec", {}).get("f:template", {})
        (ours if entry.get("manager") == FIELD_MANAGER else theirs).append(fields)
    return any(fields and not any(_covers(own, fields) for own in ours) for fields in theirs)


def _covers(ours: Json, theirs: Json) -> bool:
    return all(path in ours and _covers(ours[path], inner) for path, inner in theirs.items())


def _adds_fields(owned: Json, desired: Any) -> bool:
    """Whether somebody owns a field that is not in `desired`. One that we set too has our value by now.

    In `fieldsV1`, `f:name` is a field, `k:{"name":"x"}` the list entry with that key, and `.` the thing itself.
    """
    for path, inner in owned.items():
        kind, _, key = path.partition(":")
        if kind == "f":
            if not isinstance(desired, dict) or key not in desired or _adds_fields(inner, desired[key]):
                return True
        elif kind == "k":
            entry = _find_entry(desired, json.loads(key))
            if entry is None or _adds_fields(inner, entry):
                return True
    return False


def _find_entry(entries: Any, keys: Json) -> Any:
    if not isinstance(entries, (list, tuple)):
        return None
    return next((entry for entry in entries if keys.items() <= entry.items()), None)


def plan_child(kind: str, desired: Json | None, live: Json | None) -> tuple[ObjectWrite, ...]:
    """
    | desired | there                      | write      |
    | ------- | -------------------------- | ---------- |
    | no      | nothing, or on its way out | none       |
    | no      | something                  | delete it  |
    | yes     | nothing                    | create it  |
    | yes     | as desired                 | none       |
    | yes     | anything else              | replace it |
    """
    if desired is None:
        return plan_removal(kind, live) if live is not None else ()
    desired = note_fields(desired)
    if live is None:
        return (CreateObject(kind, desired),)
    return () if is_as_desired(desired, live) else (ReplaceObject(kind, build_replacement(desired, live)),)


def plan_removal(kind: str, live: Json) -> tuple[ObjectWrite, ...]:
    return () if "deletionTimestamp" in live["metadata"] else (DeleteObject(kind, live),)
