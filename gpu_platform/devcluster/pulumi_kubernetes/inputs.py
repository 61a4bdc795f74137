"""What a program's inputs mean. Check: the kind and the name of the object that a resource stands for, the annotations
that say how to handle it, and the inputs made complete, or refused field by field, before anything is asked of the
cluster. Diff: which changes cannot be made to an object that exists, so that it has to be replaced.

For a replacement there are two sources: the tables below, which also hold where nothing can be asked (unknown values,
no cluster), and the API server itself, which refuses a dry run of the change.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeError
from gpu_platform.pulumi_protocol.properties import Path, Unknown, path_text, without_nulls
from gpu_platform.pulumi_protocol.resource import Failure

HELM_RELEASE = "kubernetes:helm.sh/v3:Release"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
PATCH_FORCE = "pulumi.com/patchForce"
DELETION_PROPAGATION = "pulumi.com/deletionPropagationPolicy"
PROPAGATIONS = {"foreground": "Foreground", "background": "Background", "orphan": "Orphan"}
DEFAULT_NAMESPACE = "default"

AUTONAMED = "pulumi.com/autonamed"
"""An annotation: the name is ours, so that a replacement may have another one and stand beside the old object."""

SUFFIX_LENGTH = 8

SERVERS_OWN_METADATA = frozenset(
    {"creationTimestamp", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)
"""A manifest copied from a cluster carries them; a program never means them."""

TEXT_MAPS = ("labels", "annotations")

UNSAID = "unsaid"
"""A possible name, for a field that is not there."""

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


@dataclass(frozen=True)
class ObjectType:
    api_version: str
    kind: str

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def is_built_in(self) -> bool:
        """Whether its schema is the API server's own, so that no custom resource definition can change it."""
        return "." not in self.group or self.group.endswith(".k8s.io")

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


def parse_type_token(token: str) -> ObjectType:
    """The core group is `core/v1` in the SDK's own classes and `v1` in its CustomResource."""
    parts = token.split(":")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise ValueError(f"{token!r} is not a type of Kubernetes: it should look like kubernetes:apps/v1:Deployment")
    return ObjectType(parts[1].removeprefix("core/"), parts[2])


def type_of_object(tree: Json, token: str) -> ObjectType:
    """What the object itself says, else what its token means."""
    meant = parse_type_token(token)
    api_version, kind = tree.get("apiVersion"), tree.get("kind")
    return ObjectType(
        api_version if isinstance(api_version, str) else meant.api_version,
        kind if isinstance(kind, str) else meant.kind,
    )


@dataclass(frozen=True)
class Handling:
    skip_await: bool = False
    timeout_seconds: float | None = None
    patch_force: bool = False
    propagation: str = "Foreground"


def read_handling(tree: Json) -> Handling:
    """Of inputs that were checked, or of a live object; what is not understood counts as not said."""
    annotations = read_annotations(tree)
    timeout = str(annotations.get(TIMEOUT_SECONDS, ""))
    return Handling(
        skip_await=_is_true(annotations.get(SKIP_AWAIT)),
        timeout_seconds=float(timeout) if timeout.isdigit() else None,
        patch_force=_is_true(annotations.get(PATCH_FORCE)),
        propagation=PROPAGATIONS.get(str(annotations.get(DELETION_PROPAGATION, "")).lower(), "Foreground"),
    )


def read_annotations(tree: Json) -> Json:
    metadata = tree.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _is_true(text: Any) -> bool:
    return str(text).lower() == "true"


@dataclass(frozen=True)
class Naming:
    """What the engine says for a resource without a name."""

    resource_name: str
    seed: bytes
    proposed: str = ""
    allowed: bool = True


def build_name(naming: Naming) -> str:
    """The same for the preview and for the update that follows it, because both get the same seed."""
    return naming.proposed or f"{naming.resource_name}-{hashlib.sha256(naming.seed).hexdigest()[:SUFFIX_LENGTH]}"


def is_autonamed(inputs: Json) -> bool:
    return _is_true(read_annotations(inputs).get(AUTONAMED))


def is_possible_name(name: str) -> bool:
    """Whether it may stand in a path; which characters a kind allows beyond that, the API server knows."""
    return bool(name) and name not in (".", "..") and "/" not in name and "%" not in name


def build_object_id(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def parse_object_id(text: str, *, namespaced: bool, default_namespace: str) -> tuple[str | None, str]:
    """Namespace and name of `namespace/name`, or of `name` alone."""
    namespace, separator, name = text.rpartition("/")
    if not is_possible_name(name) or (separator and not is_possible_name(namespace)):
        raise ValueError(f"{text!r} is no id: write namespace/name, or name alone")
    return (namespace or default_namespace, name) if namespaced else (None, name)


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
    """`inputs` from `build_inputs`; `namespaced` is None while the kind is not known."""
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


def find_replacing(
    kind: ObjectType, old_inputs: Json, changed: Iterable[Path], mutable_kinds: frozenset[str] = frozenset()
) -> frozenset[Path]:
    """Those of the changed places that the tables say are fixed."""
    place = (kind.group, kind.kind)
    fixed = [*IDENTITY, *(_parse_path(text) for text in FIXED.get(place, ()))]
    is_immutable = old_inputs.get("immutable") is True
    if place in CONTENT and (is_immutable or kind.kind not in mutable_kinds):
        fixed += [(name,) for name in CONTENT[place]]
    if place in CONTENT and is_immutable:
        fixed.append(("immutable",))
    free = [_parse_path(text) for text in CHANGEABLE.get(place, ())]
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


def _parse_path(text: str) -> Path:
    return tuple(text.split("."))


def _is_under(path: Path, prefixes: Iterable[Path]) -> bool:
    # A whole map that comes or goes brings or takes the fixed fields inside it.
    return any(path[: len(prefix)] == prefix[: len(path)] for prefix in prefixes)


def _overlaps(path: str, field: str) -> bool:
    shorter, longer = sorted((path, field), key=len)
    return path == field or longer.startswith((f"{shorter}.", f"{shorter}["))
