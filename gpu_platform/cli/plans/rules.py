"""What no change may bring into the cluster. Each rule is a function of a resource's new inputs, and has a name.

A rule cannot be kept by hiding: what it has to read and Pulumi shows as secret counts as broken. A value that is known
only after the update is not judged. What a Helm chart makes is not in a plan, and so beyond these rules.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpu_platform.cli.plans.changes import Change
from gpu_platform.cli.plans.digest import ABSENT, Path, find_at, is_secret, is_unknown, path_text
from gpu_platform.domain.json_text import Json

POD_PLACES: dict[str, Path] = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"),
        ("spec", "template", "spec"),
    ),
}
CONTAINER_LISTS = ("initContainers", "containers")
IMAGE_PLACES: dict[str, Path] = {
    "GPUUnit": ("spec", "image"),
    "GPUStorage": ("spec", "prepare", "fromImage"),
    "GPUFunction": ("spec", "image"),
    "StockPool": ("spec", "image"),
}
"""Our own kinds of which pods are made."""

HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
RIGHTS = ("apiGroups", "resources", "verbs")
EVERYTHING = "cluster-admin"
"""The ClusterRole of Kubernetes that consists of wildcards."""

VERSION = re.compile(r":[^:/@]+$")
HIDDEN = "is secret, so that nobody can check it"


@dataclass(frozen=True)
class Finding:
    path: Path
    reason: str
    found: Any = ABSENT


@dataclass(frozen=True)
class BrokenRule:
    rule: str
    kind: str
    name: str
    path: str
    reason: str
    found: Any = ABSENT


def check_rules(changes: Iterable[Change]) -> tuple[BrokenRule, ...]:
    return tuple(
        BrokenRule(rule, change.kind, change.name, path_text(finding.path), finding.reason, finding.found)
        for change in changes
        if change.new_inputs
        for rule, check in RULES.items()
        for finding in check(change.kind, change.new_inputs)
    )


def check_limits(kind: str, inputs: Json) -> Iterator[Finding]:
    """A container without a memory limit takes its neighbours' memory; without requests it is placed blindly."""
    yield from _find_hidden(kind, inputs)
    for path, container in _list_containers(kind, inputs):
        memory = find_at(container, ("resources", "limits", "memory"))
        if memory is ABSENT or memory is None or memory == "":
            yield Finding((*path, "resources", "limits", "memory"), "is missing: no container without limits")
        requests = find_at(container, ("resources", "requests"))
        if requests is ABSENT or not requests:
            yield Finding((*path, "resources", "requests"), "is missing: no container without requests")


def check_wildcards(kind: str, inputs: Json) -> Iterator[Finding]:
    """A right to everything is also one to what does not exist yet."""
    if kind in ("Role", "ClusterRole"):
        if is_secret(inputs.get("rules")):
            yield Finding(("rules",), HIDDEN)
        for path, rule in _list_objects(inputs, ("rules",)):
            for field in RIGHTS:
                if any("*" in entry for entry in _list_texts(rule.get(field))):
                    yield Finding((*path, field), "names everything: no wildcards", rule[field])
            if "*" in _list_texts(rule.get("nonResourceURLs")):
                yield Finding((*path, "nonResourceURLs"), "names everything: no wildcards", rule["nonResourceURLs"])
    elif kind in ("RoleBinding", "ClusterRoleBinding") and find_at(inputs, ("roleRef", "name")) == EVERYTHING:
        yield Finding(("roleRef", "name"), "is a role of wildcards", EVERYTHING)


def check_privileges(kind: str, inputs: Json) -> Iterator[Finding]:
    """What a pod could leave its own bounds by. Silence is allowed here: the namespace's Pod Security label refuses it
    where it has to be said."""
    yield from _find_hidden(kind, inputs)
    place = POD_PLACES.get(kind)
    if place is None:
        return
    for field in HOST_NAMESPACES:
        if find_at(inputs, (*place, field)) is True:
            yield Finding((*place, field), "shares a namespace of the host", True)
    for path, volume in _list_objects(inputs, (*place, "volumes")):
        if volume.get("hostPath") is not None:
            yield Finding((*path, "hostPath"), "mounts a directory of the host", volume["hostPath"])
    for path, container in _list_containers(kind, inputs):
        for field in ("privileged", "allowPrivilegeEscalation"):
            if find_at(container, ("securityContext", field)) is True:
                yield Finding((*path, "securityContext", field), "gives the container more than its user has", True)


def check_images(kind: str, inputs: Json) -> Iterator[Finding]:
    """Which program runs must not depend on the day on which a node pulled it."""
    yield from _find_hidden(kind, inputs)
    images = [((*path, "image"), container.get("image")) for path, container in _list_containers(kind, inputs)]
    if place := IMAGE_PLACES.get(kind):
        images.append((place, find_at(inputs, place)))
    for path, image in images:
        if is_secret(image):
            yield Finding(path, HIDDEN)
        elif isinstance(image, str) and not is_unknown(image) and not names_one_version(image):
            yield Finding(path, "names no fixed version", image)


def names_one_version(image: str) -> bool:
    """A digest names one, whatever the tag beside it says."""
    if "@" in image:
        return True
    # In the last part only: a colon before it belongs to the registry's port.
    tag = VERSION.search(image.rpartition("/")[2])
    return tag is not None and tag[0] != ":latest"


Check = Callable[[str, Json], Iterator[Finding]]

RULES: dict[str, Check] = {
    "container-without-limits": check_limits,
    "wildcard-rbac": check_wildcards,
    "privileged-pod": check_privileges,
    "latest-image": check_images,
}


def _find_hidden(kind: str, inputs: Json) -> Iterator[Finding]:
    """The outermost place of a pod that is secret as a whole."""
    place = POD_PLACES.get(kind)
    if place is None:
        return
    for length in range(1, len(place) + 1):
        if is_secret(inputs_there := find_at(inputs, place[:length])):
            yield Finding(place[:length], HIDDEN)
            return
        if inputs_there is ABSENT:
            return
    for name in CONTAINER_LISTS:
        if is_secret(find_at(inputs, (*place, name))):
            yield Finding((*place, name), HIDDEN)


def _list_containers(kind: str, inputs: Json) -> Iterator[tuple[Path, Json]]:
    place = POD_PLACES.get(kind)
    if place is not None:
        for name in CONTAINER_LISTS:
            yield from _list_objects(inputs, (*place, name))


def _list_objects(inputs: Json, place: Path) -> Iterator[tuple[Path, Json]]:
    entries = find_at(inputs, place)
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if isinstance(entry, dict):
            yield (*place, index), entry


def _list_texts(value: Any) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []
