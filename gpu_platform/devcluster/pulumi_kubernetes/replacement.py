"""Which changes cannot be made to an object that exists, so that it has to be replaced.

Two sources: the table below, which also holds where nothing can be asked (unknown values, no cluster), and the API
server itself, which refuses a dry run of the change.
"""

import re
from collections.abc import Iterable

from gpu_platform.devcluster.pulumi_kubernetes.inputs import ObjectType
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeError
from gpu_platform.pulumi_protocol.properties import Path, path_text, starts_with

IDENTITY: tuple[Path, ...] = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))

FIXED: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "PersistentVolumeClaim"): ("spec",),
    ("", "Secret"): ("type",),
    ("", "Service"): ("spec.clusterIP", "spec.clusterIPs"),
    ("apps", "DaemonSet"): ("spec.selector",),
    ("apps", "Deployment"): ("spec.selector",),
    ("apps", "ReplicaSet"): ("spec.selector",),
    ("apps", "StatefulSet"): (
        "spec.podManagementPolicy",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    ("batch", "Job"): ("spec.completionMode", "spec.selector", "spec.template"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ("roleRef",),
    ("rbac.authorization.k8s.io", "RoleBinding"): ("roleRef",),
    ("scheduling.k8s.io", "PriorityClass"): ("preemptionPolicy", "value"),
    ("storage.k8s.io", "StorageClass"): ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
}
CHANGEABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "PersistentVolumeClaim"): ("spec.resources", "spec.volumeAttributesClassName"),
}
"""Exceptions to the table above."""

CONTENT = {("", "ConfigMap"): ("binaryData", "data"), ("", "Secret"): ("data", "stringData")}
"""Replaced with their object unless the provider has the kind as mutable; always if it was declared immutable."""

REFUSALS = ("immutable", "may not change", "may not be changed", "cannot be changed", "are forbidden")
REFUSED_FIELD = re.compile(r"(?:is invalid: \[?|, )([A-Za-z][\w.\-\[\]]*): (?:Invalid value|Forbidden)")


def find_replacing(
    kind: ObjectType, old_inputs: Json, changed: Iterable[Path], mutable_kinds: frozenset[str] = frozenset()
) -> frozenset[Path]:
    """Those of the changed places that the tables say are fixed."""
    place = (kind.group, kind.kind)
    fixed = [*IDENTITY, *(_parse(text) for text in FIXED.get(place, ()))]
    is_immutable = old_inputs.get("immutable") is True
    if place in CONTENT and (is_immutable or kind.kind not in mutable_kinds):
        fixed += [(name,) for name in CONTENT[place]]
    if place in CONTENT and is_immutable:
        fixed.append(("immutable",))
    free = [_parse(text) for text in CHANGEABLE.get(place, ())]
    return frozenset(path for path in changed if _is_under(path, fixed) and not _is_under(path, free))


def find_refused(error: KubeError, changed: Iterable[Path]) -> frozenset[Path]:
    """The changed places that this answer to a dry run calls immutable; none if it says something else."""
    if error.status != 422 or not any(word in error.message for word in REFUSALS):
        return frozenset()
    places = frozenset(changed)
    fields = REFUSED_FIELD.findall(error.message)
    named = frozenset(path for path in places if any(_overlaps(path_text(path), field) for field in fields))
    # The server's words do not always name a field that we sent; that it must be replaced is certain all the same.
    return named or places


def _parse(text: str) -> Path:
    return tuple(text.split("."))


def _is_under(path: Path, prefixes: Iterable[Path]) -> bool:
    # A whole map that comes or goes brings or takes the fixed fields inside it.
    return any(starts_with(path, prefix) or starts_with(prefix, path) for prefix in prefixes)


def _overlaps(path: str, field: str) -> bool:
    return path == field or any(
        longer.startswith(shorter) and longer[len(shorter)] in ".[" for longer, shorter in _orders(path, field)
    )


def _orders(one: str, other: str) -> tuple[tuple[str, str], ...]:
    return ((one, other),) if len(one) > len(other) else ((other, one),) if len(other) > len(one) else ()
