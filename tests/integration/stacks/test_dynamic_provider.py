"""A tenant's own Pulumi program: the example, run by the real CLI against the real API."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import claim_holder_of
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from tests.support.api import UNITS
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.pulumi_projects import STACK, PulumiProject
from tests.support.tenant_programs import (
    NAME,
    PROGRAM,
    PROJECT,
    UNIT_TYPE,
    configure,
    create_tenant_project,
    find_outputs,
    find_unit,
    get_unit,
    kill_all,
    outputs_of,
    say,
)
from tests.support.tenants import key_of
from tests.support.units_and_stock import ensure_spec, stock_of, stock_pool, wait_pool_available
from tests.support.units_api import post_ready_unit, remove_unit, spec_body
from tests.support.waiting import NotYet, eventually

OTHER = "other"
"""A second stack of the same program."""

SPEC = "dynamic.1"
POOL = "dynamic"
STOCK = 2
URN = f"urn:pulumi:{STACK}::{PROJECT}::{UNIT_TYPE}::web"


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, POOL, STOCK, specName=SPEC):
        yield


@pytest.fixture(scope="module")
async def key(cluster: RunningCluster, kube: KubeClient) -> AsyncIterator[str]:
    async with key_of(kube, cluster.record.platform_url, "default", Role.EDITOR) as (_, key):
        yield key


@pytest.fixture(scope="module")
def project(cluster: RunningCluster, key: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulumiProject]:
    """The example; what it rents is given back at the end."""
    made = create_tenant_project(cluster, tmp_path_factory.mktemp("tenant") / "project", PROGRAM, key)
    configure(made, **{f"{PROJECT}:readyWithinSeconds": "600"})
    say(made, specName=SPEC)
    made.succeed("stack", "init", OTHER, "--copy-config-from", STACK, "--no-select")
    yield made
    made.destroy()


@pytest.fixture
async def rented(project: PulumiProject, api: httpx.AsyncClient) -> Json:
    """The outputs of a unit that is as the program says."""
    say(project, specName=SPEC)
    unit, known = await find_unit(api), find_outputs(project)
    marks = ("operationID", "image", "running")
    if unit is None or known is None or [unit.get(mark) for mark in marks] != [known[mark] for mark in marks]:
        project.up("--refresh")
    return outputs_of(project)


async def test_the_example_rents_a_unit_and_says_where_it_answers(
    project: PulumiProject, api: httpx.AsyncClient, key: str, rented: Json
) -> None:
    project.succeed("preview", "--expect-no-changes")

    unit = await get_unit(api)
    exported = {"accessURL": unit["accessURL"], "phase": "Ready", "stack": f"gpu-unit/default.{NAME}"}
    assert outputs_of(project, "pulumi:pulumi:Stack") == exported
    assert unit["operationID"] == rented["operationID"]
    assert key not in project.state_file.read_text()


async def test_a_change_behind_its_back_is_seen_by_refresh_and_put_right_by_up(
    project: PulumiProject, api: httpx.AsyncClient, rented: Json
) -> None:
    assert (await api.put(f"{UNITS}/{NAME}", json={"image": "example/other"})).status_code == 200
    assert (await api.post(f"{UNITS}/{NAME}/stop")).status_code == 200

    seen = project.succeed("refresh", "--yes", "--skip-preview", "--diff")
    assert '~ image             : "example/web" => "example/other"' in seen
    assert "~ running           : true => false" in seen

    assert "[diff: ~image,running]" in project.up()
    unit = await get_unit(api)
    assert (unit["image"], unit["running"], unit["phase"]) == ("example/web", True, "Ready")
    assert unit["operationID"] == rented["operationID"]


async def test_a_unit_that_was_deleted_behind_its_back_is_rented_anew(
    project: PulumiProject, api: httpx.AsyncClient, rented: Json
) -> None:
    assert (await api.delete(f"{UNITS}/{NAME}")).status_code == 204

    project.up("--refresh")

    unit = await get_unit(api)
    assert unit["operationID"] == outputs_of(project)["operationID"] != rented["operationID"]


async def test_a_unit_is_replaced_under_its_own_name(
    project: PulumiProject, api: httpx.AsyncClient, rented: Json
) -> None:
    assert "+-1 replaced" in project.up("--replace", URN)

    unit = await get_unit(api)
    assert unit["operationID"] == outputs_of(project)["operationID"] != rented["operationID"]
    assert unit["phase"] == "Ready"


async def test_a_replacement_that_cannot_come_about_is_refused_while_the_unit_is_still_there(
    project: PulumiProject, api: httpx.AsyncClient, kube: KubeClient, rented: Json
) -> None:
    await post_ready_unit(api, "somebodys", specName=SPEC)

    say(project, specName=SPEC, name="somebodys")
    said = project.fail("up", "--yes", "--skip-preview")
    assert "error: name: there is a unit 'somebodys' already, which this resource did not rent" in said

    say(project, specName="nope")
    assert "error: specName: there is no spec 'nope'" in project.fail("preview")

    assert (await get_unit(api))["operationID"] == rented["operationID"]
    assert (await get_unit(api, "somebodys"))["operationID"] == "op-somebodys"
    await remove_unit(api, kube, "somebodys")


async def test_the_unit_of_another_stack_of_the_same_program_is_not_taken_over(
    project: PulumiProject, api: httpx.AsyncClient, rented: Json
) -> None:
    say(project, OTHER, specName=SPEC)

    said = project.fail("up", "--yes", "--skip-preview", "--stack", OTHER)

    assert (
        f"error: name: there is a unit '{NAME}' already, which this resource did not rent; choose another name" in said
    )
    assert "(409 operation_conflict, request " in said
    assert (await get_unit(api))["operationID"] == rented["operationID"]


async def test_a_create_that_was_killed_half_way_is_taken_over_by_the_next_up(
    cluster: RunningCluster, project: PulumiProject, api: httpx.AsyncClient, kube: KubeClient, rented: Json
) -> None:
    project.destroy()
    assert await find_unit(api) is None
    await wait_pool_available(kube, POOL, STOCK)
    with frozen(cluster, "reconciler"):
        process = project.start("up", "--yes", "--skip-preview")
        left = await eventually(lambda: find_unit(api))
        kill_all(project)
        process.communicate()
    assert left["operationID"] != rented["operationID"]
    project.succeed("cancel", "--yes")

    project.up()

    unit = await get_unit(api)
    assert unit["phase"] == "Ready"
    assert unit["operationID"] == outputs_of(project)["operationID"] == left["operationID"]
    assert unit["sourceStockName"] == left["sourceStockName"]

    async def is_unclaimed() -> bool | NotYet:
        holders = [claim_holder_of(each) for each in await stock_of(kube, POOL)]
        return holders == [None] * STOCK or NotYet(holders)

    await eventually(is_unclaimed)
