"""Each rule with what breaks it and what looks similar, and our own program, which breaks none."""

from typing import Any

import pytest

from gpu_platform.cli.plans.digest import SECRET, UNKNOWN
from gpu_platform.cli.plans.rules import RULES, check_rules, names_one_version
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import KUBE_DNS
from infra.components.nats import Nats, build_nats
from infra.components.processes import Workloads, build_processes
from infra.components.workloads import build_workload
from tests.unit.cli.plans.prepared_plans import build_plan_changes, build_step

AMOUNTS = {"cpu": "1", "memory": "1Gi"}
GOOD: Json = {"name": "c", "image": "x:1", "resources": {"limits": AMOUNTS, "requests": AMOUNTS}}


def broken(kind: str, inputs: Json, operation: str = "create") -> list[tuple[str, str]]:
    sides = {"old": inputs} if operation == "delete" else {"old": {"a": 1}, "new": inputs}
    changes = build_plan_changes(build_step(operation, kind, "x", **sides))
    return [(found.rule, found.path) for found in check_rules(changes.listed)]


def pod(container: Json | None = None, **fields: Any) -> Json:
    return {"spec": {"containers": [GOOD | (container or {})], **fields}}


def test_a_pod_that_says_everything_breaks_nothing() -> None:
    assert broken("Pod", pod()) == []


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("Pod", "spec"),
        ("PodTemplate", "template.spec"),
        ("Deployment", "spec.template.spec"),
        ("StatefulSet", "spec.template.spec"),
        ("DaemonSet", "spec.template.spec"),
        ("ReplicaSet", "spec.template.spec"),
        ("ReplicationController", "spec.template.spec"),
        ("Job", "spec.template.spec"),
        ("CronJob", "spec.jobTemplate.spec.template.spec"),
    ],
)
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
def test_every_kind_that_makes_pods_is_looked_into(kind: str, place: str, containers: str) -> None:
    inputs: Json = {containers: [GOOD | {"image": "x"}], "hostPID": True}
    for name in reversed(place.split(".")):
        inputs = {name: inputs}

    expected = [("privileged-pod", f"{place}.hostPID"), ("latest-image", f"{place}.{containers}[0].image")]
    assert broken(kind, inputs) == expected


@pytest.mark.parametrize("operation", ["create", "update", "replace", "import"])
def test_whatever_brings_an_object_is_judged(operation: str) -> None:
    assert broken("Pod", pod({"image": "x"}), operation) == [("latest-image", "spec.containers[0].image")]


def test_what_is_deleted_is_not_judged() -> None:
    assert broken("Pod", pod({"image": "x"}), "delete") == []


@pytest.mark.parametrize(
    ("resources", "missing"),
    [
        (None, ["limits.memory", "requests"]),
        ({}, ["limits.memory", "requests"]),
        ({"limits": {"cpu": "1"}, "requests": AMOUNTS}, ["limits.memory"]),
        ({"limits": AMOUNTS}, ["requests"]),
        ({"limits": AMOUNTS, "requests": {}}, ["requests"]),
        ({"limits": {"memory": UNKNOWN}, "requests": AMOUNTS}, []),
    ],
)
def test_a_container_has_a_memory_limit_and_requests(resources: Json | None, missing: list[str]) -> None:
    expected = [("container-without-limits", f"spec.containers[0].resources.{place}") for place in missing]

    assert broken("Pod", pod({"resources": resources})) == expected


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ({"apiGroups": ["*"], "resources": ["pods"], "verbs": ["get"]}, ["apiGroups"]),
        ({"apiGroups": [""], "resources": ["pods", "*"], "verbs": ["get"]}, ["resources"]),
        ({"apiGroups": [""], "resources": ["pods/*"], "verbs": ["get"]}, ["resources"]),
        ({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}, ["verbs"]),
        ({"nonResourceURLs": ["*"], "verbs": ["get"]}, ["nonResourceURLs"]),
        ({"nonResourceURLs": ["/metrics", "/livez/*"], "verbs": ["get"]}, []),
        ({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}, []),
    ],
)
@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_a_role_names_what_it_allows(kind: str, rule: Json, fields: list[str]) -> None:
    assert broken(kind, {"rules": [rule]}) == [("wildcard-rbac", f"rules[0].{field}") for field in fields]


@pytest.mark.parametrize(("name", "is_broken"), [("cluster-admin", True), ("gpu-platform-api", False)])
@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_a_role_of_wildcards_is_not_bound_either(kind: str, name: str, is_broken: bool) -> None:
    found = broken(kind, {"roleRef": {"kind": "ClusterRole", "name": name}})

    assert found == ([("wildcard-rbac", "roleRef.name")] if is_broken else [])


@pytest.mark.parametrize(
    ("inputs", "path"),
    [
        (pod(hostNetwork=True), "spec.hostNetwork"),
        (pod(hostPID=True), "spec.hostPID"),
        (pod(hostIPC=True), "spec.hostIPC"),
        (pod(volumes=[{"emptyDir": {}}, {"hostPath": {"path": "/"}}]), "spec.volumes[1].hostPath"),
        (pod({"securityContext": {"privileged": True}}), "spec.containers[0].securityContext.privileged"),
        (
            pod({"securityContext": {"allowPrivilegeEscalation": True}}),
            "spec.containers[0].securityContext.allowPrivilegeEscalation",
        ),
    ],
)
def test_a_pod_stays_within_its_bounds(inputs: Json, path: str) -> None:
    assert broken("Pod", inputs) == [("privileged-pod", path)]


def test_to_refuse_a_privilege_is_to_keep_the_rule() -> None:
    refused = {"privileged": False, "allowPrivilegeEscalation": False}

    assert broken("Pod", pod({"securityContext": refused}, hostNetwork=False)) == []


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nats:2.12.2", True),
        ("registry.example.com:5000/nats:2.12.2", True),
        (f"nats@sha256:{'0' * 64}", True),
        (f"nats:latest@sha256:{'0' * 64}", True),
        ("nats", False),
        ("nats:", False),
        ("nats:latest", False),
        ("registry.example.com:5000/nats", False),
        ("registry.example.com:5000/nats:latest", False),
        ("nats:latest-alpine", True),
    ],
)
def test_an_image_names_one_version(image: str, expected: bool) -> None:
    assert names_one_version(image) is expected


def test_the_image_of_stock_is_an_image() -> None:
    assert broken("StockPool", {"spec": {"image": "x:latest"}}) == [("latest-image", "spec.image")]
    assert broken("StockPool", {"spec": {"replicas": 1}}) == []
    prepared = {"spec": {"size": "1Gi", "prepare": {"fromImage": "x", "command": ["y"]}}}
    assert broken("GPUStorage", prepared) == [("latest-image", "spec.prepare.fromImage")]
    assert broken("GPUStorage", {"spec": {"size": "1Gi"}}) == []


def test_what_is_known_later_is_not_judged() -> None:
    assert broken("Pod", pod({"image": UNKNOWN})) == []


@pytest.mark.parametrize(
    ("inputs", "path"),
    [({"spec": SECRET}, "spec"), ({"spec": {"containers": SECRET}}, "spec.containers")],
)
def test_what_is_secret_as_a_whole_is_not_passed_unseen(inputs: Json, path: str) -> None:
    hidden = [rule for rule in RULES if rule != "wildcard-rbac"]

    assert broken("Pod", inputs) == [(rule, path) for rule in hidden]
    assert broken("Role", {"rules": SECRET}) == [("wildcard-rbac", "rules")]
    assert broken("Pod", pod({"image": SECRET})) == [("latest-image", "spec.containers[0].image")]


def test_our_own_workloads_break_no_rule() -> None:
    workloads = Workloads(enabled=True, image="registry.example.com/gpu-platform:1.0")
    nats = Nats(enabled=True, image="nats:2.12.2")
    bodies = [body for process in build_processes(workloads, nats) for body in build_workload(process, workloads, nats)]
    bodies += build_nats(nats, KUBE_DNS)

    assert {"Deployment", "StatefulSet"} <= {body["kind"] for body in bodies}
    assert [found for body in bodies for found in broken(body["kind"], body)] == []
