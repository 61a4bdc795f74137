"""A tenant's own Pulumi program: the example, run by the real CLI against the real API."""

import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.domain.stock import claim_holder_of
from gpu_platform.domain.tenants import Role
from tests.architecture.repository import ROOT
from tests.support.api import UNITS
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.functions_api import FUNCTIONS
from tests.support.pulumi_projects import STACK, PulumiProject
from tests.support.tenants import key_of
from tests.support.units_and_stock import ensure_spec, stock_of, stock_pool, wait_pool_available
from tests.support.units_api import post_ready_unit, remove_unit, spec_body
from tests.support.waiting import eventually

Json = dict[str, Any]

EXAMPLE = ROOT / "examples" / "tenant-program"
PROGRAM = (EXAMPLE / "__main__.py").read_text()
PROJECT = "tenant-program"
NAME = "tenant-web"
OTHER = "other"
"""A second stack of the same program."""

SPEC = "dynamic.1"
POOL = "dynamic"
STOCK = 2
TYPE = "pulumi-python:dynamic/gpuplatform:GpuUnit"
FUNCTION_TYPE = "pulumi-python:dynamic/gpuplatform:GpuFunction"
URN = f"urn:pulumi:{STACK}::{PROJECT}::{TYPE}::web"


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
    made = PulumiProject.create(tmp_path_factory.mktemp("tenant") / "project", cluster, PROGRAM, name=PROJECT)
    (made.directory / "Pulumi.yaml").write_text((EXAMPLE / "Pulumi.yaml").read_text())
    # They would stand in for the stack's configuration.
    for variable in ("GPU_PLATFORM_URL", "GPU_PLATFORM_KEY"):
        del made.environment[variable]
    made.succeed("config", "set", "--secret", "gpuplatform:key", key)
    configure(made, **{"gpuplatform:url": cluster.record.platform_url, f"{PROJECT}:readyWithinSeconds": "60"})
    say(made)
    made.succeed("stack", "init", OTHER, "--copy-config-from", STACK, "--no-select")
    yield made
    made.destroy()


@pytest.fixture
async def rented(project: PulumiProject, api: httpx.AsyncClient) -> Json:
    """The outputs of a unit that is as the program says."""
    say(project)
    unit, known = await find_unit(api), find_outputs(project)
    marks = ("operationID", "image", "running")
    if unit is None or known is None or [unit.get(mark) for mark in marks] != [known[mark] for mark in marks]:
        project.up("--refresh")
    return outputs_of(project)


def configure(project: PulumiProject, stack: str = STACK, **settings: Any) -> None:
    file = project.directory / f"Pulumi.{stack}.yaml"
    content = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**content, "config": {**content.get("config", {}), **settings}}))


def say(project: PulumiProject, stack: str = STACK, **options: str) -> None:
    """What the program finds in its configuration."""
    said = {"name": NAME, "specName": SPEC, "image": "example/web", **options}
    configure(project, stack, **{f"{PROJECT}:{name}": value for name, value in said.items()})


def find_outputs(project: PulumiProject, kind: str = TYPE) -> Json | None:
    """As the state has them."""
    if not project.state_file.exists():
        return None
    resources = json.loads(project.state_file.read_text())["checkpoint"]["latest"].get("resources", [])
    return next((dict(each["outputs"]) for each in resources if each["type"] == kind), None)


def outputs_of(project: PulumiProject, kind: str = TYPE) -> Json:
    outputs = find_outputs(project, kind)
    assert outputs is not None
    return outputs


async def find_unit(api: httpx.AsyncClient, name: str = NAME) -> Json | None:
    answer = await api.get(f"{UNITS}/{name}")
    return None if answer.status_code == 404 else dict(answer.json()["data"])


async def get_unit(api: httpx.AsyncClient, name: str = NAME) -> Json:
    unit = await find_unit(api, name)
    assert unit is not None
    return unit


def kill_all(project: PulumiProject) -> None:
    """Every process of a Pulumi run, also those that outlive the command itself."""
    mark = f"PULUMI_HOME={project.environment['PULUMI_HOME']}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue


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

    say(project, name="somebodys")
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
    say(project, OTHER)

    said = project.fail("up", "--yes", "--skip-preview", "--stack", OTHER)

    assert (
        f"error: name: there is a unit '{NAME}' already, which this resource did not rent; choose another name" in said
    )
    assert "(409 operation_conflict, request " in said
    assert (await get_unit(api))["operationID"] == rented["operationID"]


def test_what_is_wrong_is_told_in_a_sentence(project: PulumiProject, key: str) -> None:
    command = ("up", "--yes", "--skip-preview", "--stack", OTHER)
    say(project, OTHER, name="Web_1")
    assert "property name value {Web_1} has a problem: should be 1 to 40 lower-case letters" in project.fail(*command)

    say(project, OTHER, name="second", specName="nope")
    said = project.fail(*command)
    assert "error: specName: there is no spec 'nope'; there are: " in said
    assert "(400 invalid_request, request " in said

    project.succeed("config", "set", "--stack", OTHER, "--secret", "gpuplatform:key", f"{key[:-1]}-")
    said = project.fail(*command)
    assert "(401 unauthenticated, request " in said
    assert "set a valid one with `pulumi config set --secret gpuplatform:key`" in said

    configure(project, OTHER, **{"gpuplatform:key": key})
    assert "gpuplatform:key stands in clear in the stack's configuration" in project.fail("preview", "--stack", OTHER)


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
    await wait_pool_available(kube, POOL, STOCK)
    assert [claim_holder_of(each) for each in await stock_of(kube, POOL)] == [None] * STOCK


async def test_a_unit_that_does_not_start_is_given_back_with_the_reason(
    kube: KubeClient, api: httpx.AsyncClient, project: PulumiProject
) -> None:
    """On the node that really runs commands."""
    project.destroy()
    program = project.directory / "__main__.py"
    program.write_text(PROGRAM.replace('"python3"', '"pyhton3"'))
    say(project, specName="host.1")
    try:
        async with stock_pool(kube, "dynamic-host", 1, specName="host.1"):
            said = project.fail("up", "--yes", "--skip-preview")
    finally:
        program.write_text(PROGRAM)

    assert f"error: the unit '{NAME}' is not Ready: Failed (PodStartupFailed: " in said
    assert "No such file or directory: 'pyhton3'" in said
    assert "so it was given back" in said
    assert await find_unit(api) is None


FUNCTION_PROGRAM = """
import pulumi
from providers.dynamic import GpuFunction

config = pulumi.Config()
words = GpuFunction(
    "words",
    name=config.require("name"),
    spec_name=config.require("specName"),
    image=config.require("image"),
    queue_limit=config.get_int("queueLimit"),
    timeout_seconds=config.get_int("timeoutSeconds"),
    ready_within_seconds=0,
)
pulumi.export("stack", words.stack)
pulumi.export("operationID", words.operation_id)
"""


async def test_a_function_is_declared_changed_found_again_and_taken_away(
    cluster: RunningCluster, key: str, api: httpx.AsyncClient, tmp_path: Path
) -> None:
    project = PulumiProject.create(tmp_path / "functions", cluster, FUNCTION_PROGRAM, name=PROJECT)
    for variable in ("GPU_PLATFORM_URL", "GPU_PLATFORM_KEY"):
        del project.environment[variable]
    project.succeed("config", "set", "--secret", "gpuplatform:key", key)
    configure(project, **{"gpuplatform:url": cluster.record.platform_url})
    say(project, name="tenant-words", timeoutSeconds="60")
    path = f"{FUNCTIONS}/tenant-words"
    project.up()
    project.succeed("preview", "--expect-no-changes")
    declared = (await api.get(path)).json()["data"]
    exported = outputs_of(project, "pulumi:pulumi:Stack")
    assert exported == {"stack": "gpu-function/default.tenant-words", "operationID": declared["operationID"]}
    assert (declared["timeoutSeconds"], declared["queueLimit"]) == (60, 10_000)

    assert (await api.put(path, json={"queueLimit": 5, "timeoutSeconds": 61})).status_code == 200
    project.up("--refresh")
    changed = (await api.get(path)).json()["data"]
    assert (changed["queueLimit"], changed["timeoutSeconds"]) == (10_000, 60)
    assert changed["operationID"] == declared["operationID"]

    # What the state does not know any more is taken over by the resource that made it, and by no other.
    project.succeed("state", "delete", "--yes", f"urn:pulumi:{STACK}::{PROJECT}::{FUNCTION_TYPE}::words")
    say(project, name="tenant-words", queueLimit="7", timeoutSeconds="60")
    project.up()
    adopted = (await api.get(path)).json()["data"]
    assert (adopted["operationID"], adopted["queueLimit"]) == (declared["operationID"], 7)

    project.destroy()
    assert (await api.get(path)).status_code == 404
