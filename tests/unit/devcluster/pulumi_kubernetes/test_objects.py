"""Kinds, readiness, annotations, outputs, configuration and functions: the small decisions of the plugin."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_platform.devcluster.pulumi_kubernetes.cluster import read_kinds
from gpu_platform.devcluster.pulumi_kubernetes.configuration import (
    Configuration,
    check_is_embedded,
    load_kubeconfig,
    read_configuration,
    write_kubeconfig,
)
from gpu_platform.devcluster.pulumi_kubernetes.inputs import Handling, ObjectType, read_handling
from gpu_platform.devcluster.pulumi_kubernetes.readiness import describe_unscheduled, judge_readiness
from gpu_platform.devcluster.pulumi_kubernetes.servicer import (
    BadArgumentError,
    UnknownFunctionError,
    call_function,
    decode_yaml,
    refusal,
)
from gpu_platform.devcluster.pulumi_kubernetes.state import build_outputs, build_planned_outputs, find_secrets
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import EMBEDDED_CLUSTER
from gpu_platform.kube import KubeError, NoConnectionError, ResourcePath, UnreachableError
from gpu_platform.pulumi_protocol.properties import UNKNOWN, Properties
from gpu_platform.pulumi_protocol.resource import describe

DEPLOYMENT = ObjectType("apps/v1", "Deployment")
DEFINITION = ObjectType("apiextensions.k8s.io/v1", "CustomResourceDefinition")
NAMESPACE = ObjectType("v1", "Namespace")
SERVICE = ObjectType("v1", "Service")


def test_kinds_are_read_without_their_subresources() -> None:
    answer = {
        "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": True},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": True},
            {"name": "things", "kind": "Thing", "namespaced": False},
        ]
    }

    assert read_kinds("apps/v1", answer) == {
        "Deployment": ResourcePath("apps/v1", "deployments"),
        "Thing": ResourcePath("apps/v1", "things", namespaced=False),
    }


def build_deployment(status: Json, **spec: Any) -> Json:
    return {"metadata": {"generation": 2}, "spec": {"replicas": 2, **spec}, "status": status}


RUNNING = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
STUCK = {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "timed out"}


@pytest.mark.parametrize(
    ("kind", "live", "ready", "hopeless"),
    [
        (DEPLOYMENT, build_deployment(RUNNING), True, False),
        (DEPLOYMENT, build_deployment({**RUNNING, "observedGeneration": 1}), False, False),
        (DEPLOYMENT, build_deployment({**RUNNING, "availableReplicas": 1}), False, False),
        (DEPLOYMENT, build_deployment({**RUNNING, "replicas": 3}), False, False),
        (DEPLOYMENT, build_deployment({"observedGeneration": 2}, replicas=0), True, False),
        (DEPLOYMENT, build_deployment({"observedGeneration": 2}, paused=True), True, False),
        (DEPLOYMENT, build_deployment({"observedGeneration": 2, "conditions": [STUCK]}), False, True),
        (DEFINITION, {"status": {"conditions": None}}, False, False),
        (DEFINITION, {"status": {"conditions": [{"type": "Established", "status": "True"}]}}, True, False),
        (DEFINITION, {"status": {"conditions": [{"type": "NamesAccepted", "status": "False"}]}}, False, True),
        (NAMESPACE, {"status": {"phase": "Active"}}, True, False),
        (NAMESPACE, {}, False, False),
        (SERVICE, {}, True, False),
    ],
)
def test_readiness(kind: ObjectType, live: Json, ready: bool, hopeless: bool) -> None:
    verdict = judge_readiness(kind, live)

    assert (verdict.ready, verdict.hopeless) == (ready, hopeless)
    assert ready or verdict.reason


def test_annotations_say_how_a_resource_is_handled() -> None:
    said = {
        "pulumi.com/skipAwait": "true",
        "pulumi.com/timeoutSeconds": "30",
        "pulumi.com/patchForce": "True",
        "pulumi.com/deletionPropagationPolicy": "orphan",
    }

    assert read_handling({"metadata": {"annotations": said}}) == Handling(True, 30.0, True, "Orphan")
    assert read_handling({}) == Handling()


def test_outputs_carry_the_live_object_its_inputs_and_its_manager_and_mark_the_secrets() -> None:
    inputs = Properties({"metadata": {"name": "a"}, "data": {"k": "s"}}, frozenset({("data", "k")}))
    live = {"metadata": {"name": "a", "uid": "u", "managedFields": [{}]}, "data": {"k": "s"}}
    outputs = build_outputs(ObjectType("v1", "ConfigMap"), live, inputs, "m")

    assert outputs.tree == {
        "metadata": {"name": "a", "uid": "u"},
        "data": {"k": "s"},
        "__inputs": inputs.tree,
        "__initialApiVersion": "v1",
        "__fieldManager": "m",
    }
    assert outputs.secrets == {("data", "k"), ("__inputs", "data", "k")}


@pytest.mark.parametrize(
    "rehearsed", [None, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80, "nodePort": 1}]}}]
)
def test_a_preview_does_not_invent_what_the_server_will_give(rehearsed: Json | None) -> None:
    inputs = Properties({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})
    outputs = build_planned_outputs(SERVICE, inputs, "m", rehearsed).tree

    assert (outputs["metadata"]["name"], outputs["metadata"]["uid"]) == ("a", UNKNOWN)
    assert (outputs["spec"]["clusterIP"], outputs["status"]) == (UNKNOWN, UNKNOWN)
    assert outputs["spec"]["ports"] == [{"port": 80} if rehearsed is None else {"port": 80, "nodePort": UNKNOWN}]


def test_a_failure_is_one_line_with_the_object_and_the_field() -> None:
    refused = KubeError(422, "Invalid", 'Deployment.apps "a" is invalid: spec.x: Required\nvalue')

    assert describe(refused, "Deployment shop/a", "https://s") == "Deployment shop/a: spec.x: Required value (Invalid)"
    away = describe(UnreachableError(0, "Unreachable", "no route"), "Deployment", "https://s")
    assert away == "Deployment: the API server https://s cannot be reached: no route"


def test_configuration_from_inputs_and_environment() -> None:
    said = {"context": "c", "namespace": "shop", "upsertExistingObjects": "true"}

    assert read_configuration(said, {"PULUMI_K8S_ENABLE_PATCH_FORCE": "true"}) == Configuration(
        context="c", namespace="shop", enable_patch_force=True, upsert_existing_objects=True
    )
    assert read_configuration({"kubeconfig": UNKNOWN}, {}) is None


KUBECONFIG = """
current-context: a
contexts:
- {name: a, context: {cluster: a, user: u}}
- {name: b, context: {cluster: b, user: u}}
clusters:
- {name: a, cluster: {certificate-authority: ca.crt}}
users:
- {name: u, user: {client-key: /keys/u}}
"""


def test_a_context_is_chosen_and_files_are_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    (tmp_path / "other").write_text("current-context: z\ncontexts: [{name: a, context: {cluster: z}}]\n")
    source = os.pathsep.join(map(str, (tmp_path / "config", tmp_path / "nowhere", tmp_path / "other")))
    built = load_kubeconfig(Configuration(context="b", cluster="a"), {"KUBECONFIG": source})

    assert built is not None
    assert built["current-context"] == "b"
    assert {each["name"]: each["context"]["cluster"] for each in built["contexts"]} == {"a": "a", "b": "a"}
    assert built["clusters"][0]["cluster"] == {"certificate-authority": str(tmp_path / "ca.crt")}
    assert built["users"][0]["user"] == {"client-key": "/keys/u"}
    written = write_kubeconfig(built, tmp_path)
    assert written.stat().st_mode & 0o077 == 0
    assert yaml.safe_load(written.read_text()) == built


def test_a_context_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NoConnectionError) as caught:
        load_kubeconfig(Configuration(kubeconfig=KUBECONFIG, context="prod"), {})

    assert str(caught.value) == "the kubeconfig has no context 'prod'; it has: a, b"


def mark(server: str, extension: str) -> dict[str, Any]:
    cluster = {"server": server, "extensions": [{"name": extension, "extension": {}}]}
    contexts = [{"name": "c", "context": {"cluster": "k"}}]
    return {"current-context": "c", "contexts": contexts, "clusters": [{"name": "k", "cluster": cluster}]}


def test_only_an_embedded_cluster_is_changed_unless_told() -> None:
    check_is_embedded(mark("https://127.0.0.1:6443", EMBEDDED_CLUSTER), {})
    for other in (
        mark("https://127.0.0.1:6443", "minikube.sigs.k8s.io"),
        mark("https://prod.example.com", EMBEDDED_CLUSTER),
        None,
    ):
        with pytest.raises(NoConnectionError, match="works on embedded clusters only"):
            check_is_embedded(other, {"GPU_PLATFORM_STAND_IN_ANY_CLUSTER": "no"})
        check_is_embedded(other, {"GPU_PLATFORM_STAND_IN_ANY_CLUSTER": "true"})


@pytest.mark.parametrize("said", ["/nowhere/kubeconfig", "{"])
def test_a_kubeconfig_that_cannot_be_used_is_named(said: str) -> None:
    with pytest.raises(NoConnectionError, match="kubeconfig"):
        load_kubeconfig(Configuration(kubeconfig=said), {})


def test_pods_without_a_node_are_counted_with_the_scheduler_s_reason() -> None:
    def pod(status: str, reason: str) -> dict[str, Any]:
        condition = {"type": "PodScheduled", "status": status, "reason": reason, "message": "0/4 nodes are available"}
        return {"status": {"conditions": [condition]}}

    waiting, placed = pod("False", "Unschedulable"), pod("True", "")
    assert describe_unscheduled([waiting, placed]) == "1 pod cannot be scheduled: 0/4 nodes are available"
    assert describe_unscheduled([waiting, waiting]) == "2 pods cannot be scheduled: 0/4 nodes are available"
    assert describe_unscheduled([placed, pod("False", "SchedulingGated"), {}]) == ""


def test_manifests_are_decoded_as_kubernetes_reads_them() -> None:
    text = "kind: A\nwhen: 2024-01-01\n---\n---\nkind: B\nmetadata: {namespace: own}\n"

    assert call_function("kubernetes:yaml:decode", {"text": text, "defaultNamespace": "n"})["result"] == [
        {"kind": "A", "when": "2024-01-01", "metadata": {"namespace": "n"}},
        {"kind": "B", "metadata": {"namespace": "own"}},
    ]


@pytest.mark.parametrize("text", ["a: [", "just text"])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(BadArgumentError):
        decode_yaml(text)


def test_functions_of_the_official_plugin_are_named_as_such() -> None:
    with pytest.raises(UnknownFunctionError, match="kubernetes:helm:template: install the official plugin"):
        call_function("kubernetes:helm:template", {})


def test_a_helm_release_is_refused_with_the_way_out() -> None:
    message = refusal({"chart": "gpu-operator", "version": "v1"}, "4.1.0")

    assert "Helm release of gpu-operator v1" in message
    assert "pulumi plugin install resource kubernetes v4.1.0" in message


def test_what_a_secret_holds_is_secret_even_where_nobody_said_so() -> None:
    live = {"data": {"a": "eA=="}, "metadata": {"annotations": {}}}

    assert find_secrets(ObjectType("v1", "Secret"), frozenset(), {}, live) == {("data",)}
