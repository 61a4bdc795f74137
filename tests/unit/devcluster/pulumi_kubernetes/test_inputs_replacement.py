"""Which differences need another object."""

import pytest

from gpu_platform.devcluster.pulumi_kubernetes.inputs import ObjectType, find_refused, find_replacing
from gpu_platform.kube import KubeError
from gpu_platform.pulumi_protocol.properties import Path


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (("v1", "ConfigMap"), ("metadata", "name")),
        (("v1", "ConfigMap"), ("metadata", "namespace")),
        (("v1", "ConfigMap"), ("kind",)),
        (("v1", "ConfigMap"), ("apiVersion",)),
        (("v1", "Secret"), ("type",)),
        (("v1", "Service"), ("spec", "clusterIP")),
        (("v1", "PersistentVolumeClaim"), ("spec", "accessModes", 0)),
        (("apps/v1", "Deployment"), ("spec", "selector", "matchLabels", "app")),
        (("apps/v1", "StatefulSet"), ("spec", "serviceName")),
        (("batch/v1", "Job"), ("spec", "template", "spec", "containers", 0, "image")),
        (("rbac.authorization.k8s.io/v1", "RoleBinding"), ("roleRef", "name")),
        (("storage.k8s.io/v1", "StorageClass"), ("provisioner",)),
        (("scheduling.k8s.io/v1", "PriorityClass"), ("value",)),
    ],
)
def test_what_cannot_be_changed_replaces(kind: tuple[str, str], path: Path) -> None:
    assert find_replacing(ObjectType(*kind), {}, [path, ("metadata", "labels", "a")]) == {path}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (("v1", "Service"), ("spec", "ports", 0, "port")),
        (("v1", "PersistentVolumeClaim"), ("spec", "resources", "requests", "storage")),
        (("apps/v1", "Deployment"), ("spec", "template", "spec", "containers", 0, "image")),
        (("example.org/v1", "Deployment"), ("spec", "selector")),
    ],
)
def test_what_can_be_changed_does_not_replace(kind: tuple[str, str], path: Path) -> None:
    assert find_replacing(ObjectType(*kind), {}, [path]) == frozenset()


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_changed_content_replaces_unless_the_provider_has_the_kind_as_mutable(kind: str) -> None:
    changed: list[Path] = [("data", "a"), ("immutable",), ("metadata", "labels")]

    assert find_replacing(ObjectType("v1", kind), {}, changed) == {("data", "a")}
    assert find_replacing(ObjectType("v1", kind), {}, changed, frozenset({kind})) == frozenset()


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_the_content_of_what_was_declared_immutable_replaces(kind: str) -> None:
    changed = [("data", "a"), ("immutable",), ("metadata", "labels")]

    mutable = frozenset({kind})
    fixed = {("data", "a"), ("immutable",)}
    assert find_replacing(ObjectType("v1", kind), {"immutable": True}, changed, mutable) == fixed
    assert find_replacing(ObjectType("v1", kind), {"immutable": False}, changed, mutable) == frozenset()


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ('X "a" is invalid: spec.size: Invalid value: 3: field is immutable', {("spec", "size")}),
        ('X "a" is invalid: spec: Forbidden: updates to X for fields other than y are forbidden', {("spec", "size")}),
        ('X "a" is invalid: [spec.size: Invalid value: 3: Value is immutable, b: Required value]', {("spec", "size")}),
        ('X "a" is invalid: status.x: Forbidden: may not be changed', {("spec", "size"), ("data",)}),
        ('X "a" is invalid: spec.size: Invalid value: 3: must be less than 2', set()),
    ],
)
def test_the_servers_refusal_of_a_dry_run_names_what_replaces(message: str, refused: set[Path]) -> None:
    error = KubeError(422, "Invalid", message)

    assert find_refused(error, [("spec", "size"), ("data",)]) == refused


def test_a_refusal_for_another_reason_does_not_replace() -> None:
    assert find_refused(KubeError(403, "Forbidden", "updates are forbidden"), [("data",)]) == frozenset()
