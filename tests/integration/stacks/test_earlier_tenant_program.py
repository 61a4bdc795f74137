"""A stack that a tenant's program made at an earlier commit: today's code previews, refreshes and destroys it.

Its state names the providers of its resources by module and class.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import yaml

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.functions import FUNCTIONS
from tests.support.pulumi_projects import STACK, PulumiProject
from tests.support.storages import STORAGES
from tests.support.units_and_stock import ensure_spec, stock_pool
from tests.support.units_api import spec_body
from tests.support.waiting import NotYet, eventually

EARLIER: Json = yaml.safe_load(
    (Path(__file__).parents[2] / "support" / "earlier_tenant_program.yaml").read_text(encoding="utf-8")
)
SPEC = "earlier-program.0"
COLLECTIONS = {"GpuStorage": STORAGES, "GpuFunction": FUNCTIONS, "GpuUnit": UNITS}
OF_PULUMI = {"__provider", "owner", "readyWithinSeconds", "running"}
"""Inputs that no request has."""

PROGRAM = """
from {module} import GpuFunction, GpuStorage, GpuUnit

data = GpuStorage("data", name="earlier-data", size="1Gi", accessor={{"enabled": True}})
GpuUnit(
    "user",
    name="earlier-user",
    spec_name="earlier-program.0",
    image="example/train",
    template={{
        "envs": [{{"name": "GREETING", "value": "hello"}}],
        "ports": [{{"name": "http", "port": 8000}}],
        "probes": {{"readiness": {{"http": {{"port": "http"}}}}}},
    }},
    access={{"tenant": True}},
    storage_mounts=[{{"name": data.name, "mountPath": "/data"}}],
)
GpuFunction(
    "words",
    name="earlier-words",
    spec_name="earlier-program.0",
    image="example/words",
    max_workers=2,
    timeout_seconds=60,
    ready_within_seconds=0,
)
"""


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC, gpu=0, cpu="1m", memory="1Mi"))
    async with stock_pool(kube, "earlier-program", 1, specName=SPEC):
        yield


def list_earlier() -> dict[str, Json]:
    """The resources by the last part of their type, in the order in which they can be made."""
    resources = {each["type"].rpartition(":")[2]: each for each in EARLIER["deployment"]["resources"]}
    return {kind: resources[kind] for kind in COLLECTIONS}


async def test_a_stack_of_an_earlier_commit_is_previewed_refreshed_and_destroyed(
    cluster: RunningCluster, api: httpx.AsyncClient, tmp_path: Path
) -> None:
    for kind, resource in list_earlier().items():
        inputs = {key: value for key, value in resource["inputs"].items() if key not in OF_PULUMI}
        body = {**inputs, "operationID": resource["outputs"]["operationID"]}
        made = await api.post(COLLECTIONS[kind], json=body)
        assert made.status_code == 201, made.text
        if kind != "GpuFunction":
            await wait_ready(api, f"{COLLECTIONS[kind]}/{inputs['name']}")
    project = PulumiProject.create(
        tmp_path / "project", cluster, PROGRAM.format(module="gpu_platform.pulumi"), name="tenant"
    )
    project.environment["GPU_PLATFORM_URL"] = cluster.record.platform_url
    project.environment["GPU_PLATFORM_KEY"] = cluster.record.api_key
    salt = yaml.safe_load((project.directory / f"Pulumi.{STACK}.yaml").read_text())["encryptionsalt"]
    secrets = {"secrets_providers": {"type": "passphrase", "state": {"salt": salt}}}
    state = tmp_path / "state.json"
    state.write_text(json.dumps({**EARLIER, "deployment": {**EARLIER["deployment"], **secrets}}))
    project.succeed("stack", "import", "--file", str(state))

    project.succeed("preview", "--expect-no-changes")
    project.succeed("refresh", "--yes", "--skip-preview")
    project.succeed("preview", "--expect-no-changes")
    (project.directory / "__main__.py").write_text(PROGRAM.format(module="providers.dynamic"))
    project.succeed("preview", "--expect-no-changes")
    for kind, resource in list_earlier().items():
        shown = (await api.get(f"{COLLECTIONS[kind]}/{resource['id']}")).json()["data"]
        assert shown["operationID"] == resource["outputs"]["operationID"]

    project.destroy()

    for kind, resource in list_earlier().items():
        assert (await api.get(f"{COLLECTIONS[kind]}/{resource['id']}")).status_code == 404


async def wait_ready(api: httpx.AsyncClient, path: str) -> None:
    async def is_ready() -> bool | NotYet:
        phase = (await api.get(path)).json()["data"]["phase"]
        return phase == "Ready" or NotYet(phase)

    await eventually(is_ready)
