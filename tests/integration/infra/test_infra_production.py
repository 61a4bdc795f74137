"""The production example on an empty cluster: previewed with its Helm chart, and run without it."""

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.paths import PODS
from gpu_platform.domain import names
from infra.objects.workloads import API
from tests.support.access_reviews import TENANT
from tests.support.bootstrap import BootstrapStack, list_remains, list_uids, name_of, read_config
from tests.support.cluster_addons import cluster_addons
from tests.support.waiting import NotYet, eventually

RUNNING = 3 + 2 + 2 + 3
"""Pods: of the API, the reconciler, the stack worker and NATS."""


def test_the_production_example_previews_its_gpu_operator(stack: BootstrapStack) -> None:
    stack.configure(read_config("prod"))

    steps = {name_of(step): step for step in stack.plan() if "infra" in step["urn"]}

    wanted = read_config("prod")["gpu-platform:gpuOperator"]
    release = steps["Release gpu-operator"]["newState"]["inputs"]
    assert (release["chart"], release["version"], release["values"]) == (
        wanted["chart"],
        wanted["version"],
        wanted["values"],
    )
    assert release["repositoryOpts"] == {"repo": wanted["repository"]}
    namespace = steps["Namespace gpu-operator"]["newState"]["inputs"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


async def test_the_production_example_runs_without_its_helm_part(stack: BootstrapStack, bare_kube: KubeClient) -> None:
    config = read_config("prod")
    config["gpu-platform:gpuOperator"]["enabled"] = False
    stack.configure(config)
    async with cluster_addons(bare_kube, volumes=config["gpu-platform:nats"]["replicas"]):
        stack.up()

        async def all_run() -> bool | NotYet:
            pods = (await bare_kube.get(PODS.collection(names.SYSTEM_NAMESPACE)))["items"]
            phases = [pod["status"].get("phase") for pod in pods]
            return phases == ["Running"] * RUNNING or NotYet(phases)

        await eventually(all_run)
        assert not stack.has_changes()
        assert stack.outputs()["apiURL"] == f"http://{API}.{names.SYSTEM_NAMESPACE}.svc.cluster.local:80"
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
