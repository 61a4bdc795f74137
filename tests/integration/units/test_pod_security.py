"""Every pod that the platform makes passes its namespace's Pod Security profile, by server-side dry run."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.storages import GPUStorageSpec, Prepare
from gpu_platform.domain.units import GPUUnitSpec
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.paths import NAMESPACES, PODS
from reconciler.storages.resources import StorageBuild, StorageSettings, build_accessor, build_job
from reconciler.units.resources import UnitBuild, build_deployment
from reconciler.units.serverless_resources import SidecarSettings, plan_worker
from reconciler.units.ssh_resources import SshSettings, plan_ssh
from tests.support.ssh_blocks import ssh_block
from tests.support.waiting import eventually

Enforce = Callable[[str], Awaitable[str]]

SIDECAR = SidecarSettings(
    nats_url="nats://nats:4222",
    egress=None,
    image="gpu-platform",
    command=("python",),
    result_retention=timedelta(hours=1),
    grace=timedelta(seconds=30),
    has_credentials=True,
)

SSH = SshSettings("example/sshd:1", "example/frpc:1")

REFUSED_BY_ALL: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe"},
    "spec": {"hostNetwork": True, "containers": [{"name": "main", "image": "example/any"}]},
}


@pytest.fixture
def enforced(kube: KubeClient, namespace: str) -> Enforce:
    """A function that makes the test's namespace enforce a profile."""

    async def enforce(profile: str) -> str:
        labels = {"pod-security.kubernetes.io/enforce": profile}
        await kube.patch(NAMESPACES.item(namespace), {"metadata": {"labels": labels}})

        async def is_enforced() -> bool:
            return not await is_accepted(kube, namespace, REFUSED_BY_ALL)

        # The API server takes a moment to follow its own namespaces.
        await eventually(is_enforced)
        return namespace

    return enforce


def pod_of(unit_namespace: str, *, restricted: bool, **spec: Any) -> Json:
    build = UnitBuild(
        namespace=unit_namespace,
        name="demo",
        uid="uid",
        spec=GPUUnitSpec.model_validate({"specName": "g1.1", "image": "example/train", **spec}),
        catalogue=GPUSpecSpec(memory="1Gi", gpu=1),
        restricted=restricted,
        replicas=1,
        preferred_node="sim-h100-0",
        placeholder_image="busybox:1.36",
        blocked_egress=(),
    )
    # Of a unit that takes calls, or has SSH, the sidecars as well.
    build = replace(build, worker=plan_worker(build.spec, unit_namespace, "demo", None, SIDECAR))
    build = replace(build, ssh=plan_ssh(build.spec, unit_namespace, "demo", SSH, ()))
    template = build_deployment(build)["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "demo", **template["metadata"]},
        "spec": template["spec"],
    }


async def find_violation(kube: KubeClient, namespace: str, pod: Json) -> str | None:
    try:
        await kube.create(PODS.collection(namespace), pod, {"dryRun": "All"})
    except KubeError as error:
        if "violates PodSecurity" not in error.message:
            raise
        return error.message
    return None


async def is_accepted(kube: KubeClient, namespace: str, pod: Json) -> bool:
    return await find_violation(kube, namespace, pod) is None


async def test_every_container_drops_all_and_one_that_adds_net_raw_is_refused(
    kube: KubeClient, enforced: Enforce
) -> None:
    namespace = await enforced("baseline")
    pod = pod_of("runtime-instance", restricted=False, ssh=ssh_block(), serverless={"requestID": "words"})
    [main] = pod["spec"]["containers"]
    for container in (main, *pod["spec"]["initContainers"]):
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"], container["name"]
    assert await is_accepted(kube, namespace, pod)
    main["securityContext"]["capabilities"]["add"].append("NET_RAW")
    assert "NET_RAW" in (await find_violation(kube, namespace, pod) or "")


async def test_restricted_accepts_every_stock_pod(kube: KubeClient, enforced: Enforce) -> None:
    namespace = await enforced("restricted")
    assert await is_accepted(kube, namespace, pod_of("runtime-stock", restricted=True))
    assert await is_accepted(kube, namespace, pod_of("runtime-stock", restricted=True, image=None))


async def test_baseline_accepts_every_tenant_pod(kube: KubeClient, enforced: Enforce) -> None:
    namespace = await enforced("baseline")
    template = {"command": ["python"], "ports": [{"name": "http", "port": 8000}]}
    assert await is_accepted(kube, namespace, pod_of("runtime-instance", restricted=False, template=template))
    assert await is_accepted(kube, namespace, pod_of("runtime-instance", restricted=False, image=None))


async def test_restricted_accepts_the_pods_of_a_tenant_with_that_profile(kube: KubeClient, enforced: Enforce) -> None:
    namespace = await enforced("restricted")
    assert await is_accepted(kube, namespace, pod_of("runtime-instance-strict", restricted=True))


async def test_a_unit_that_takes_calls_fits_its_tenants_profile(kube: KubeClient, enforced: Enforce) -> None:
    strict = pod_of("runtime-instance-strict", restricted=True, serverless={"requestID": "words"})
    assert "initContainers" in strict["spec"]
    assert await is_accepted(kube, await enforced("restricted"), strict)


async def test_a_unit_with_ssh_fits_baseline(kube: KubeClient, enforced: Enforce) -> None:
    pod = pod_of("runtime-instance", restricted=False, ssh=ssh_block(tokenHash="a" * 32))
    assert len(pod["spec"]["initContainers"]) == 2
    assert await is_accepted(kube, await enforced("baseline"), pod)


async def test_restricted_refuses_a_unit_with_ssh_which_is_why_the_plan_does(
    kube: KubeClient, enforced: Enforce
) -> None:
    pod = pod_of("runtime-instance-strict", restricted=True, ssh=ssh_block())
    assert not await is_accepted(kube, await enforced("restricted"), pod)


@pytest.mark.parametrize("profile", ["baseline", "restricted"])
async def test_what_prepares_and_shows_a_storage_fits_its_tenants_profile(
    kube: KubeClient, enforced: Enforce, profile: str
) -> None:
    namespace = await enforced(profile)
    prepare = Prepare(from_storage_name="base")
    build = StorageBuild(
        namespace=namespace,
        name="weights",
        uid="uid",
        spec=GPUStorageSpec(size="1Gi", prepare=prepare),
        restricted=profile == "restricted",
        settings=StorageSettings("busybox:1.36", "dufs:1", ("dufs",), blocked_egress=()),
    )
    for owner in (build_job(build, prepare, "f" * 64), build_accessor(build)):
        template = owner["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "demo", **template["metadata"]}}
        assert await is_accepted(kube, namespace, {**pod, "spec": template["spec"]})


async def test_a_unit_with_storages_fits_its_tenants_profile(kube: KubeClient, enforced: Enforce) -> None:
    mounts = [{"name": "weights", "mountPath": "/models"}]
    strict = pod_of("runtime-instance-strict", restricted=True, storageMounts=mounts)
    assert await is_accepted(kube, await enforced("restricted"), strict)


async def test_restricted_would_refuse_a_baseline_tenants_pod(kube: KubeClient, enforced: Enforce) -> None:
    """So that the tests above could fail."""
    namespace = await enforced("restricted")
    assert not await is_accepted(kube, namespace, pod_of("runtime-instance", restricted=False))
