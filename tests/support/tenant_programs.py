"""A tenant's own Pulumi programs, which talk to the real API: their configuration, their state, their processes."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import yaml

from gpu_platform.domain.json_text import Json
from tests.architecture.repository import ROOT
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.pulumi_projects import STACK, PulumiProject

EXAMPLE = ROOT / "examples" / "tenant-program"
PROGRAM = (EXAMPLE / "__main__.py").read_text()
PROJECT = "tenant-program"
NAME = "tenant-web"
UNIT_TYPE = "pulumi-python:dynamic/gpuplatform:GpuUnit"


def create_tenant_project(cluster: RunningCluster, directory: Path, program: str, key: str) -> PulumiProject:
    """With the key in its configuration, as a secret."""
    made = PulumiProject.create(directory, cluster, program, name=PROJECT)
    (made.directory / "Pulumi.yaml").write_text((EXAMPLE / "Pulumi.yaml").read_text())
    # They would stand in for the stack's configuration.
    for variable in ("GPU_PLATFORM_URL", "GPU_PLATFORM_KEY"):
        del made.environment[variable]
    made.succeed("config", "set", "--secret", "gpuplatform:key", key)
    configure(made, **{"gpuplatform:url": cluster.record.platform_url})
    return made


def configure(project: PulumiProject, stack: str = STACK, **settings: Any) -> None:
    file = project.directory / f"Pulumi.{stack}.yaml"
    content = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**content, "config": {**content.get("config", {}), **settings}}))


def say(project: PulumiProject, stack: str = STACK, **options: str) -> None:
    """What the program finds in its configuration."""
    said = {"name": NAME, "image": "example/web", **options}
    configure(project, stack, **{f"{PROJECT}:{name}": value for name, value in said.items()})


def find_outputs(project: PulumiProject, kind: str = UNIT_TYPE) -> Json | None:
    """As the state has them."""
    if not project.state_file.exists():
        return None
    resources = json.loads(project.state_file.read_text())["checkpoint"]["latest"].get("resources", [])
    return next((dict(each["outputs"]) for each in resources if each["type"] == kind), None)


def outputs_of(project: PulumiProject, kind: str = UNIT_TYPE) -> Json:
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
