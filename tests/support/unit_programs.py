"""Programs of others that declare a unit with the provider `gpuplatform`, and what tests ask of that unit."""

import json
import os
from pathlib import Path
from typing import Any

import providers.cluster
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import intent_of
from gpu_platform.domain.stock import claim_holder_of, is_available
from gpu_platform.kube import KubeClient
from providers.cluster.resources import GPU_UNIT
from tests.support.clusters import RunningCluster
from tests.support.pulumi_projects import PulumiProject
from tests.support.units_and_stock import INSTANCES, get_unit, stock_of
from tests.support.waiting import eventually

SPEC = "provider.1"
POOL = "provider"
BIN = Path(providers.cluster.__file__).parent / "bin"

PROGRAM = """
import json
import os
import pulumi
from providers.cluster.resources import GpuUnit

spec = json.loads(os.environ["SPEC"])
if "PASSWORD" in os.environ:
    spec["template"] = {"envs": [{"name": "PASSWORD", "value": pulumi.Output.secret(os.environ["PASSWORD"])}]}
unit = GpuUnit("unit", name=os.environ["NAME"], spec=spec, operation_id=os.environ.get("OPERATION_ID"))
pulumi.export("uid", unit.uid)
pulumi.export("acceptedHash", unit.accepted_hash)
"""


def create_project(
    cluster: RunningCluster, directory: Path, program: str = PROGRAM, *, name: str = "shop", **settings: str
) -> PulumiProject:
    """A program from elsewhere, unless it has the name of one of the platform's own. The plugin is on its PATH."""
    project = PulumiProject.create(directory / "project", cluster, program, name=name, **settings)
    project.environment["PATH"] = os.pathsep.join([str(BIN), project.environment["PATH"]])
    return project


def wish(unit: str, **spec: Any) -> dict[str, str]:
    return {"NAME": unit, "SPEC": json.dumps({"specName": SPEC, "image": "example/train", **spec})}


def say(project: PulumiProject, **changed: Any) -> None:
    project.settings["SPEC"] = json.dumps({**json.loads(project.settings["SPEC"]), **changed})


async def accepted_spec(kube: KubeClient, unit: str) -> Json:
    intent = intent_of(await get_unit(kube, unit))
    assert intent is not None
    return intent.spec


def without_status(unit: Json) -> Json:
    """All that a write by the provider could change."""
    theirs = ("managedFields", "resourceVersion")
    metadata = {key: value for key, value in unit["metadata"].items() if key not in theirs}
    return {"metadata": metadata, "spec": unit["spec"]}


async def wait_for_stock(kube: KubeClient) -> None:
    async def is_there() -> bool:
        return any(map(is_available, await stock_of(kube, POOL)))

    await eventually(is_there)


async def claims_for(kube: KubeClient, unit: str) -> int:
    holder = names.claim_holder(INSTANCES, unit)
    return [claim_holder_of(stock) for stock in await stock_of(kube, POOL)].count(holder)


def outputs_of(project: PulumiProject) -> Json:
    """Of the unit, as the state has them."""
    resources = json.loads(project.state_file.read_text())["checkpoint"]["latest"]["resources"]
    [unit] = [each for each in resources if each["type"] == GPU_UNIT]
    return dict(unit["outputs"])
