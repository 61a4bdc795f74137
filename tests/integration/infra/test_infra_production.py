"""The production example on an empty cluster: previewed with its Helm chart, and run without it."""

import re
from pathlib import Path
from typing import Any

from gpu_platform.domain import names
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import NETWORK_POLICIES, PODS
from infra.components.processes import API
from tests.support.access_reviews import TENANT
from tests.support.bootstrap import BootstrapStack, list_remains, list_uids, name_of, read_production
from tests.support.cluster_addons import cluster_addons
from tests.support.waiting import NotYet, eventually

RUNNING = 3 + 2 + 2 + 3
"""Pods: of the API, the reconciler, the stack worker and NATS."""

MADE_BEFORE = Path(__file__).with_name("stack_with_default_provider.txt")
"""The resources of this stack as the last program made them that declared no provider: types with their parents', and
names. It must stay as it is: a stack in use has these."""


def test_the_production_example_previews_its_gpu_operator(stack: BootstrapStack) -> None:
    config = read_production(gpu_operator=True)
    stack.configure(config)

    steps = {name_of(step): step for step in stack.plan() if "infra" in step["urn"]}

    wanted = config["gpu-platform:gpuOperator"]
    release = steps["Release gpu-operator"]["newState"]["inputs"]
    assert (release["chart"], release["version"], release["values"]) == (
        wanted["chart"],
        wanted["version"],
        wanted["values"],
    )
    assert release["repositoryOpts"] == {"repo": wanted["repository"]}
    namespace = steps["Namespace gpu-operator"]["newState"]["inputs"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_a_chart_that_cannot_be_loaded_does_not_stop_the_preview_of_everything_else(stack: BootstrapStack) -> None:
    """The official plugin loads the chart in the same step, from its repository."""
    config = read_production(gpu_operator=True)
    config["gpu-platform:gpuOperator"] |= {"chart": "./nowhere", "repository": None}
    stack.configure(config)

    shown = stack.run("preview")

    assert shown.returncode != 0
    assert "there is no chart in ./nowhere: it has no Chart.yaml" in shown.stdout
    for line in MADE_BEFORE.read_text().splitlines():
        kind, name = line.split(" ")
        assert (kind.split("$")[-1] in shown.stdout, name.removesuffix("*") in shown.stdout) == (True, True), line


async def test_service_monitors_without_their_kind_are_refused_before_anything_is_made(
    stack: BootstrapStack, bare_kube: KubeClient
) -> None:
    stack.configure(read_production(service_monitors=True))

    refused = stack.run("up", "--yes", "--skip-preview")

    assert refused.returncode != 0
    assert (
        f"gpu-platform:workloads.serviceMonitors.enabled is true, and the cluster of the context "
        f"{names.EMBEDDED_CONTEXT!r} has no kind ServiceMonitor (monitoring.coreos.com/v1): install the Prometheus "
        "Operator" in refused.stdout
    )
    assert "Traceback" not in refused.stdout + refused.stderr
    assert await list_remains(bare_kube) == []


async def test_the_production_example_runs_without_its_helm_part(stack: BootstrapStack, bare_kube: KubeClient) -> None:
    config = read_production(service_monitors=True)
    stack.configure(config)
    async with cluster_addons(bare_kube, volumes=config["gpu-platform:nats"]["replicas"]):
        stack.up()

        async def all_run() -> bool | NotYet:
            pods = (await bare_kube.get(PODS.collection(names.SYSTEM_NAMESPACE)))["items"]
            phases = [pod["status"].get("phase") for pod in pods]
            return phases == ["Running"] * RUNNING or NotYet(phases)

        await eventually(all_run)
        await assert_every_pod_has_a_policy(bare_kube)
        assert not stack.has_changes()
        assert stack.outputs()["apiURL"] == f"http://{API}.{names.SYSTEM_NAMESPACE}.svc.cluster.local:80"
        assert_outputs_are_real(stack)
        await assert_a_stack_without_a_provider_of_its_own_is_taken_over(stack, bare_kube)
        made, state = await list_uids(bare_kube), stack.export()
        # Pulumi's own command looks first, and begins nothing then.
        for refused in (stack.bootstrap("destroy"), stack.run("destroy", "--yes")):
            assert refused.returncode != 0
            assert "protected" in refused.stdout + refused.stderr
            assert await list_uids(bare_kube) == made
            assert stack.export() == state
        assert TENANT in await list_remains(bare_kube)

        stack.configure({**config, "gpu-platform:protect": False})
        stack.up()
        stack.destroy()
    assert await list_remains(bare_kube) == []


async def assert_every_pod_has_a_policy(kube: KubeClient) -> None:
    """Its namespace denies everything, and a policy of its own opens what it needs."""
    policies = (await kube.get(NETWORK_POLICIES.collection(names.SYSTEM_NAMESPACE)))["items"]
    selectors = [policy["spec"]["podSelector"].get("matchLabels", {}) for policy in policies]
    assert {} in selectors
    for pod in (await kube.get(PODS.collection(names.SYSTEM_NAMESPACE)))["items"]:
        labels = pod["metadata"]["labels"].items()
        assert any(selector and selector.items() <= labels for selector in selectors), pod["metadata"]["name"]


def assert_outputs_are_real(stack: BootstrapStack) -> None:
    components = {each["urn"].split("::")[-1]: each for each in stack.export()["resources"] if not each["custom"]}
    assert components["namespaces"]["outputs"]["tenants"] == {"default": "runtime-instance", "acme": TENANT}
    assert components["workloads"]["outputs"] == {"apiURL": stack.outputs()["apiURL"]}
    assert components["nats"]["outputs"] == {"url": stack.outputs()["natsURL"]}
    assert all(each["outputs"] for each in components.values())


async def assert_a_stack_without_a_provider_of_its_own_is_taken_over(stack: BootstrapStack, kube: KubeClient) -> None:
    """A kind that is replaced takes all of its objects with it."""
    resources = {describe(each) for each in stack.export()["resources"]}
    assert set(MADE_BEFORE.read_text().splitlines()) <= resources
    made = await list_uids(kube)
    stack.forget_provider()

    [step] = stack.plan()

    assert (step["op"], step["urn"].split("::")[-1]) == ("create", "cluster")
    shown = stack.up().stdout
    assert "+ 1 created" in shown
    assert not re.search(r"replaced|deleted|updated", shown)
    assert await list_uids(kube) == made


def describe(resource: dict[str, Any]) -> str:
    """`Namespaces$kubernetes:core/v1:Namespace runtime-stock`; without the digest in the name of a ConfigMap."""
    _, _, kinds, name = resource["urn"].split("::", 3)
    if kinds.endswith(":ConfigMap"):
        name = re.sub(r"-[0-9a-f]{10}$", "-*", name)
    return f"{kinds.replace('gpu-platform:infra:', '')} {name}"
