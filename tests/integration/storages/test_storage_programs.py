"""Pulumi programs of others that declare a storage and the unit that mounts it, with the plugin and over REST."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import providers.cluster
from gpu_platform.domain import names
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_STORAGES, GPU_UNITS, PODS
from providers.cluster.lifecycle import UNMOUNTED_SECONDS
from providers.rest.lifecycle import STOCK_SECONDS
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.pulumi_projects import LIMIT_SECONDS, PulumiProject
from tests.support.storages import STORAGES, get_storage_view, lingering_pod, wait_unmounted
from tests.support.tenant_programs import configure, outputs_of
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, stock_pool
from tests.support.units_api import delete_operations, spec_body
from tests.support.waiting import eventually

SPEC = "programs.0"
POOL = "programs"
BIN = Path(providers.cluster.__file__).parent / "bin"


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC, gpu=0, cpu="1m", memory="1Mi"))
    async with stock_pool(kube, POOL, 2, specName=SPEC):
        yield


PROGRAM = """
import json
import os
import pulumi
from providers.cluster.resources import GpuStorage, GpuUnit

storage = GpuStorage("storage", name="declared-data", spec=json.loads(os.environ["STORAGE"]))
if "UNIT" in os.environ:
    mounts = [{"name": storage.name, "mountPath": "/data"}]
    GpuUnit("unit", name="declared-user", spec={**json.loads(os.environ["UNIT"]), "storageMounts": mounts})
"""


def create_declared(cluster: RunningCluster, directory: Path) -> PulumiProject:
    project = PulumiProject.create(directory, cluster, PROGRAM, name="shop")
    project.environment["PATH"] = os.pathsep.join([str(BIN), project.environment["PATH"]])
    project.settings["STORAGE"] = json.dumps({"size": "1Gi"})
    project.settings["UNIT"] = json.dumps({"specName": SPEC, "image": "example/train"})
    project.up()
    return project


async def test_a_program_declares_a_storage_and_the_unit_that_mounts_it(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    project = create_declared(cluster, tmp_path / "project")
    project.succeed("preview", "--expect-no-changes")
    storage = await kube.get(GPU_STORAGES.item("declared-data", INSTANCES))
    assert storage["metadata"]["finalizers"] == [names.STORAGE_FINALIZER]
    assert storage["metadata"]["annotations"][names.ANNOTATION_OWNER_STACK] == "shop/test"
    assert (await get_storage_view(api, "declared-data"))["mountedBy"] == ["declared-user"]

    project.settings["STORAGE"] = json.dumps({"size": "2Gi", "retain": True})
    project.up()
    grown = await get_storage_view(api, "declared-data")
    assert (grown["size"], grown["retain"]) == ("2Gi", True)
    # A smaller one is refused, and no data is lost.
    project.settings["STORAGE"] = json.dumps({"size": "1Gi"})
    said = project.fail("up", "--yes", "--skip-preview")
    assert "a storage cannot shrink" in said
    assert (await kube.get(GPU_STORAGES.item("declared-data", INSTANCES)))["metadata"]["uid"] == (
        storage["metadata"]["uid"]
    )
    # Another class is another storage.
    project.settings["STORAGE"] = json.dumps({"size": "2Gi", "storageClassName": "other"})
    assert "storageClassName" in project.succeed("preview", "--diff")
    project.settings["STORAGE"] = json.dumps({"size": "2Gi", "retain": False})
    project.up()

    # The unit goes first, and the storage as soon as it is free.
    project.destroy()
    for path in (GPU_STORAGES.item("declared-data", INSTANCES), GPU_UNITS.item("declared-user", INSTANCES)):
        assert await find(kube, path) is None
    for name in ("declared-data", "declared-user"):
        await delete_operations(kube, name)


DYNAMIC_PROGRAM = """
import pulumi
from providers.dynamic import GpuStorage, GpuUnit

config = pulumi.Config()
data = GpuStorage("data", name="tenant-data", size=config.require("size"), retain=config.get_bool("retain"))
user = GpuUnit(
    "user",
    name="tenant-user",
    spec_name=config.require("specName"),
    image="example/train",
    storage_mounts=[{"name": data.name, "mountPath": "/data"}] if config.get_bool("mounts") else [],
)
pulumi.export("stack", data.stack)
pulumi.export("capacity", data.capacity)
"""


def create_tenants(cluster: RunningCluster, directory: Path) -> PulumiProject:
    project = PulumiProject.create(directory, cluster, DYNAMIC_PROGRAM, name="tenant")
    project.environment["GPU_PLATFORM_URL"] = cluster.record.platform_url
    project.environment["GPU_PLATFORM_KEY"] = cluster.record.api_key
    configure(project, **{"tenant:size": "1Gi", "tenant:specName": SPEC, "tenant:mounts": "true"})
    project.up()
    return project


async def test_a_tenants_program_makes_a_storage_over_rest_mounts_it_and_takes_both_away(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    project = create_tenants(cluster, tmp_path / "project")
    project.succeed("preview", "--expect-no-changes")
    assert outputs_of(project, "pulumi:pulumi:Stack") == {"stack": "gpu-storage/default.tenant-data", "capacity": "1Gi"}
    assert (await get_storage_view(api, "tenant-data"))["mountedBy"] == ["tenant-user"]

    assert (await api.put(f"{STORAGES}/tenant-data", json={"retain": True})).status_code == 200
    configure(project, **{"tenant:size": "2Gi"})
    project.up("--refresh")
    changed = await get_storage_view(api, "tenant-data")
    assert (changed["size"], changed["retain"]) == ("2Gi", False)
    configure(project, **{"tenant:size": "1Gi"})
    assert "a storage cannot shrink" in project.fail("up", "--yes", "--skip-preview")
    configure(project, **{"tenant:size": "2Gi"})
    configure(project, **{"tenant:mounts": "false"})
    project.up()
    await wait_unmounted(api, "tenant-data")
    configure(project, **{"tenant:mounts": "true"})
    project.up()

    project.destroy()
    assert (await api.get(f"{STORAGES}/tenant-data")).status_code == 404
    assert (await api.get(f"{UNITS}/tenant-user")).status_code == 404
    for name in ("tenant-data", "tenant-user"):
        await delete_operations(kube, name)


@pytest.mark.faults
async def test_a_destroyed_program_waits_for_a_unit_that_is_slow_to_release_its_storage(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path, faults: FaultReport
) -> None:
    """With the plugin and over REST: for longer than either waits for a unit that lives."""
    projects = {
        ("declared-user", "declared-data"): create_declared(cluster, tmp_path / "declared"),
        ("tenant-user", "tenant-data"): create_tenants(cluster, tmp_path / "tenant"),
    }
    for unit, storage in projects:
        await kube.create(PODS.collection(INSTANCES), lingering_pod(unit, storage))
    running = [project.start("destroy", "--yes", "--skip-preview") for project in projects.values()]

    async def are_units_gone() -> bool:
        return all([await find(kube, GPU_UNITS.item(unit, INSTANCES)) is None for unit, _ in projects])

    await eventually(are_units_gone)
    await asyncio.sleep(max(UNMOUNTED_SECONDS, STOCK_SECONDS) + 5)
    for unit, storage in projects:
        assert (await get_storage_view(api, storage))["mountedBy"] == [unit]
        await kube.delete(PODS.item(f"lingers-{unit}", INSTANCES))
    faults.hit("a storage is released late", len(projects))
    for process in running:
        said, _ = await asyncio.to_thread(process.communicate, timeout=LIMIT_SECONDS)
        assert process.returncode == 0, said
    for unit, storage in projects:
        assert await find(kube, GPU_STORAGES.item(storage, INSTANCES)) is None
        for name in (unit, storage):
            await delete_operations(kube, name)
    faults.held("the program is destroyed")
