"""The provider `gpuplatform`, run by the real CLI for the platform's own stacks and for somebody else's programs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.operations import delete_operation_name
from gpu_platform.domain.stacks import StackKind
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_SPECS, GPU_UNITS, OPERATIONS, STOCK_POOLS
from providers.cluster.resources import GPU_UNIT, attachment
from providers.cluster.servicer import hosted
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.unit_programs import (
    POOL,
    SPEC,
    accepted_spec,
    claims_for,
    create_project,
    outputs_of,
    say,
    wait_for_stock,
    wish,
    without_status,
)
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    create_unit,
    delete_unit,
    ensure_spec,
    find,
    get_unit,
    stock_pool,
    unit_body,
    wait_unit_phase,
)
from tests.support.units_api import delete_operations, post_ready_unit, remove_unit, spec_body
from tests.support.waiting import eventually

T = TypeVar("T")


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, POOL, 2, specName=SPEC):
        yield


@pytest.fixture(scope="module")
async def attached(kube: KubeClient) -> AsyncIterator[dict[str, str]]:
    """The environment of a command that attaches to the provider in this process, as the platform's own stacks do."""
    async with hosted(kube) as port:
        yield attachment(port)


async def beside(call: Callable[..., T], *arguments: str) -> T:
    """While the provider in this process answers."""
    return await asyncio.to_thread(call, *arguments)


async def delete_that_one(kube: KubeClient, unit: Json) -> None:
    """By hand. The platform's own stack worker may have put another one in its place before anybody looks."""
    path = GPU_UNITS.item(unit["metadata"]["name"], unit["metadata"]["namespace"])
    await kube.delete(path)

    async def is_gone() -> bool:
        live = await find(kube, path)
        return live is None or live["metadata"]["uid"] != unit["metadata"]["uid"]

    await eventually(is_gone)


async def handed_over(kube: KubeClient, unit: str) -> None:
    """The stock has gone that the unit was made from."""

    async def is_over() -> bool:
        return await claims_for(kube, unit) == 0

    await eventually(is_over)


async def test_the_platforms_own_stack_adopts_what_was_accepted_puts_it_back_and_takes_no_change_back(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, attached: dict[str, str], tmp_path: Path
) -> None:
    await post_ready_unit(api, "recorded", specName=SPEC)
    await handed_over(kube, "recorded")
    before = await get_unit(kube, "recorded")
    settings = wish("recorded", **await accepted_spec(kube, "recorded"))
    project = create_project(
        cluster, tmp_path, name=StackKind.GPU_UNIT, OPERATION_ID="op-recorded", **settings, **attached
    )
    assert "+ 2 created" in await beside(project.up)
    assert without_status(await get_unit(kube, "recorded")) == without_status(before)
    assert await claims_for(kube, "recorded") == 0
    assert outputs_of(project)["uid"] == before["metadata"]["uid"]
    await beside(project.succeed, "refresh", "--preview-only", "--expect-no-changes")

    change = await api.put(f"{UNITS}/recorded", json={"image": "example/newer"})
    assert change.status_code == 200, change.text
    say(project, image="example/older")
    refused = await beside(project.fail, "up", "--yes", "--skip-preview")
    assert "was changed since this stack last saw it, and that change was accepted" in refused
    changed = await get_unit(kube, "recorded")
    assert changed["spec"]["image"] == "example/newer"

    say(project, image="example/newer")
    assert "~ 1 updated" in await beside(project.up)
    assert without_status(await get_unit(kube, "recorded")) == without_status(changed)

    await wait_for_stock(kube)
    await delete_that_one(kube, before)
    await beside(project.up, "--refresh")
    again = await wait_unit_phase(kube, "recorded", "Ready")
    assert outputs_of(project)["uid"] == again["metadata"]["uid"]
    assert await accepted_spec(kube, "recorded") == changed["spec"]
    assert annotations_of(again)[names.ANNOTATION_OPERATION_ID] == "op-recorded"
    assert annotations_of(again)[names.ANNOTATION_SOURCE_STOCK_NAME].startswith(f"{POOL}-")

    await beside(project.destroy)
    assert await find(kube, GPU_UNITS.item("recorded", INSTANCES)) is None
    deliberate = delete_operation_name("default", again["metadata"]["uid"])
    assert (await kube.get(OPERATIONS.item(deliberate, INSTANCES)))["spec"]["kind"] == "DeleteUnit"
    await delete_operations(kube, "recorded")


async def test_a_unit_that_exists_is_imported_and_deleted_only_as_that_very_one(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, attached: dict[str, str], tmp_path: Path
) -> None:
    await wait_for_stock(kube)
    await post_ready_unit(api, "imported", specName=SPEC)
    settings = wish("imported", **await accepted_spec(kube, "imported"))
    project = create_project(cluster, tmp_path, **settings, **attached)
    options = ("--yes", "--skip-preview", "--protect=false", "--generate-code=false")
    await beside(project.succeed, "import", GPU_UNIT, "unit", f"{INSTANCES}/imported", *options)
    unit = await get_unit(kube, "imported")

    assert "updated" not in await beside(project.up)
    assert without_status(await get_unit(kube, "imported")) == without_status(unit)
    assert outputs_of(project)["uid"] == unit["metadata"]["uid"]

    await remove_unit(api, kube, "imported")
    other = await create_unit(kube, unit_body("imported", specName=SPEC, running=False))
    await beside(project.destroy)
    assert (await get_unit(kube, "imported"))["metadata"]["uid"] == other["metadata"]["uid"]
    await delete_unit(kube, "imported")


async def test_what_was_made_by_hand_is_refused(
    cluster: RunningCluster, kube: KubeClient, attached: dict[str, str], tmp_path: Path
) -> None:
    by_hand = await create_unit(kube, unit_body("by-hand", specName=SPEC, running=False))
    project = create_project(cluster, tmp_path, name=StackKind.GPU_UNIT, **wish("by-hand"), **attached)

    refused = await beside(project.fail, "up", "--yes", "--skip-preview")
    assert f"GPUUnit {INSTANCES}/by-hand exists already, and was made by hand: nobody accepted it" in refused
    assert without_status(await get_unit(kube, "by-hand")) == without_status(by_hand)
    await delete_unit(kube, "by-hand")


POOL_PROGRAM = """
import os
import pulumi
from providers.cluster.resources import GpuSpec, GpuUnit, StockPool

entry = GpuSpec(
    "entry",
    name="declared.1",
    spec={"memory": "1Gi", "gpu": 1, "nodeSelector": {"runtime.lokiwager.io/node": "simulated"},
          "pricePerHour": os.environ["PRICE"]},
)
StockPool("warm", name="declared", spec={"specName": entry.name, "replicas": int(os.environ["REPLICAS"])})
image = pulumi.Output.concat("example/", entry.uid)
GpuUnit("stockless", name="stockless", spec={"specName": "nobody-has.1", "image": image})
"""


async def test_a_program_declares_catalogue_stock_and_a_unit_for_which_there_is_no_stock(
    cluster: RunningCluster, kube: KubeClient, attached: dict[str, str], tmp_path: Path
) -> None:
    project = create_project(cluster, tmp_path, POOL_PROGRAM, PRICE="1.50", REPLICAS="0", **attached)
    assert "there is no free stock for GPUUnit runtime-instance/stockless" in await beside(project.up)
    entry = await kube.get(GPU_SPECS.item("declared.1"))
    pool = await kube.get(STOCK_POOLS.item("declared", STOCK))
    unit = await get_unit(kube, "stockless")
    assert annotations_of(pool)[names.ANNOTATION_OWNER_STACK] == "shop/test"
    assert unit["spec"]["image"] == f"example/{entry['metadata']['uid']}"
    assert names.ANNOTATION_SOURCE_STOCK_NAME not in annotations_of(unit)

    project.settings |= {"PRICE": "2.50", "REPLICAS": "1"}
    assert "~ 2 updated" in await beside(project.up, "--refresh")
    assert (await kube.get(GPU_SPECS.item("declared.1")))["spec"]["pricePerHour"] == "2.50"
    assert (await kube.get(STOCK_POOLS.item("declared", STOCK)))["spec"]["replicas"] == 1

    await beside(project.destroy)
    for path in (GPU_SPECS.item("declared.1"), STOCK_POOLS.item("declared", STOCK)):
        assert await find(kube, path) is None


async def test_many_engines_work_with_one_provider_at_once(
    cluster: RunningCluster, kube: KubeClient, attached: dict[str, str], tmp_path: Path
) -> None:
    units = ("hosted-1", "hosted-2")
    # What stands still takes no stock.
    projects = [create_project(cluster, tmp_path / unit, **wish(unit, running=False), **attached) for unit in units]
    await asyncio.gather(*(beside(project.up) for project in projects))
    for unit in units:
        assert names.ANNOTATION_SOURCE_STOCK_NAME not in annotations_of(await get_unit(kube, unit))

    say(projects[0], running=True)
    await asyncio.gather(beside(projects[0].up), beside(projects[1].destroy))
    started = await wait_unit_phase(kube, "hosted-1", "Ready")
    assert annotations_of(started)[names.ANNOTATION_SOURCE_STOCK_NAME].startswith(f"{POOL}-")
    assert await find(kube, GPU_UNITS.item("hosted-2", INSTANCES)) is None
    await beside(projects[0].destroy)
