"""Pulumi programs of others that declare a storage and the unit that mounts it, with the plugin and over REST."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import providers.cluster
from gpu_platform.adapters.kube import KubeClient
from gpu_platform.adapters.kube.paths import GPU_STORAGES, GPU_UNITS
from gpu_platform.domain import names
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.pulumi_projects import PulumiProject
from tests.support.storages_api import STORAGES, get_storage_view, wait_unmounted
from tests.support.tenant_programs import configure, outputs_of
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, stock_pool
from tests.support.units_api import delete_operations, spec_body

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


async def test_a_program_declares_a_storage_and_the_unit_that_mounts_it(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    project = PulumiProject.create(tmp_path / "project", cluster, PROGRAM, name="shop")
    project.environment["PATH"] = os.pathsep.join([str(BIN), project.environment["PATH"]])
    project.settings["STORAGE"] = json.dumps({"size": "1Gi"})
    project.settings["UNIT"] = json.dumps({"specName": SPEC, "image": "example/train"})
    project.up()
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


async def test_a_tenants_program_makes_a_storage_over_rest_mounts_it_and_takes_both_away(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    project = PulumiProject.create(tmp_path / "project", cluster, DYNAMIC_PROGRAM, name="tenant")
    project.environment["GPU_PLATFORM_URL"] = cluster.record.platform_url
    project.environment["GPU_PLATFORM_KEY"] = cluster.record.api_key
    configure(project, **{"tenant:size": "1Gi", "tenant:specName": SPEC, "tenant:mounts": "true"})
    project.up()
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
