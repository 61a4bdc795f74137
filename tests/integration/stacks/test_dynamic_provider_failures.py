"""A tenant's own Pulumi program when something is wrong with it, and one that declares a function."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from tests.support.clusters import RunningCluster
from tests.support.functions import FUNCTIONS
from tests.support.pulumi_projects import STACK, PulumiProject
from tests.support.tenant_programs import (
    NAME,
    PROGRAM,
    PROJECT,
    configure,
    create_tenant_project,
    find_unit,
    outputs_of,
    say,
)
from tests.support.tenants import key_of
from tests.support.units_and_stock import ensure_spec, stock_pool
from tests.support.units_api import spec_body

SPEC = "dynamic.1"
FUNCTION_TYPE = "pulumi-python:dynamic/gpuplatform:GpuFunction"


@pytest.fixture(scope="module", autouse=True)
async def spec(kube: KubeClient) -> None:
    await ensure_spec(kube, spec_body(SPEC))


@pytest.fixture(scope="module")
async def key(cluster: RunningCluster, kube: KubeClient) -> AsyncIterator[str]:
    async with key_of(kube, cluster.record.platform_url, "default", Role.EDITOR) as (_, key):
        yield key


@pytest.fixture
def project(cluster: RunningCluster, key: str, tmp_path: Path) -> PulumiProject:
    """The example, with nothing rented."""
    made = create_tenant_project(cluster, tmp_path / "project", PROGRAM, key)
    configure(made, **{f"{PROJECT}:readyWithinSeconds": "600"})
    return made


def test_what_is_wrong_is_told_in_a_sentence(project: PulumiProject, key: str) -> None:
    command = ("up", "--yes", "--skip-preview")
    say(project, name="Web_1", specName=SPEC)
    assert "property name value {Web_1} has a problem: should be 1 to 40 lower-case letters" in project.fail(*command)

    say(project, name="second", specName=SPEC)
    project.succeed("config", "set", "--secret", "gpuplatform:key", f"{key[:-1]}-")
    said = project.fail(*command)
    assert "(401 unauthenticated, request " in said
    assert "set a valid one with `pulumi config set --secret gpuplatform:key`" in said

    configure(project, **{"gpuplatform:key": key})
    assert "gpuplatform:key stands in clear in the stack's configuration" in project.fail("preview")


async def test_a_unit_that_does_not_start_is_given_back_with_the_reason(
    kube: KubeClient, api: httpx.AsyncClient, project: PulumiProject
) -> None:
    """On the node that really runs commands."""
    (project.directory / "__main__.py").write_text(PROGRAM.replace('"python3"', '"pyhton3"'))
    say(project, specName="host.1")
    async with stock_pool(kube, "dynamic-host", 1, specName="host.1"):
        said = project.fail("up", "--yes", "--skip-preview")

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
    project = create_tenant_project(cluster, tmp_path / "functions", FUNCTION_PROGRAM, key)
    say(project, name="tenant-words", specName=SPEC, timeoutSeconds="60")
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
    say(project, name="tenant-words", specName=SPEC, queueLimit="7", timeoutSeconds="60")
    project.up()
    adopted = (await api.get(path)).json()["data"]
    assert (adopted["operationID"], adopted["queueLimit"]) == (declared["operationID"], 7)

    project.destroy()
    assert (await api.get(path)).status_code == 404
