"""Whose an object is: that of the resource whose field manager applied it, and of no other."""

import hashlib

from gpu_platform.pulumi_protocol.properties import Json

APPLIED_BY = "pulumi.com/applied-by"
"""An annotation with the manager's name, on every object. The API server remembers a manager only by the fields that
it has set, and a ConfigMap or Namespace with nothing but a name would have none."""


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
