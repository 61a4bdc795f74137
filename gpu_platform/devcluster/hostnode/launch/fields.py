"""The downward API: what a pod may know about itself. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_platform.devcluster.hostnode.launch.errors import CannotStartError
from gpu_platform.devcluster.hostnode.launch.quantities import count_in
from gpu_platform.kube.client import Json

HOST_ADDRESS = "127.0.0.1"

_MAP_ENTRY = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")


@dataclass(frozen=True)
class NodeFacts:
    """What a pod learns from its node rather than from its own object."""

    address: str
    """The pod's real address: the one that its processes can bind."""
    allocatable: Mapping[str, str]
    """The limits of a container that names none."""


def read_field(pod: Json, field_path: str, facts: NodeFacts) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    if entry := _MAP_ENTRY.fullmatch(field_path):
        return str((metadata.get(entry["map"]) or {}).get(entry["key"], ""))
    match field_path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata[field_path.removeprefix("metadata.")])
        case "metadata.labels" | "metadata.annotations":
            return _format_map(metadata.get(field_path.removeprefix("metadata.")) or {})
        case "spec.nodeName":
            return str(spec["nodeName"])
        case "spec.serviceAccountName":
            return str(spec.get("serviceAccountName", "default"))
        case "status.podIP" | "status.podIPs":
            return facts.address
        case "status.hostIP" | "status.hostIPs":
            return HOST_ADDRESS
    raise CannotStartError(f"the host node does not know the field {field_path!r}")


def read_resource(pod: Json, container: Json, reference: Json, facts: NodeFacts) -> str:
    """A `resourceFieldRef`; in a volume it names its container, in a variable it means the variable's own."""
    name = reference.get("containerName") or container.get("name")
    spec = pod["spec"]
    owner = next((c for c in [*spec["containers"], *spec.get("initContainers", [])] if c["name"] == name), container)
    section, _, resource = str(reference["resource"]).partition(".")
    amounts = (owner.get("resources") or {}).get(section) or {}
    fallback = facts.allocatable.get(resource, "0") if section == "limits" else "0"
    return str(count_in(str(amounts.get(resource, fallback)), str(reference.get("divisor") or "1")))


def _format_map(entries: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(entries.items()))
