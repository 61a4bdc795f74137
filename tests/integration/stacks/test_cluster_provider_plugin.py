"""The provider `gpuplatform` as a plugin that the real CLI starts for a program from elsewhere."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS
from providers.cluster.resources import GPU_UNIT
from tests.support.clusters import RunningCluster
from tests.support.unit_programs import (
    BIN,
    POOL,
    SPEC,
    claims_for,
    create_project,
    say,
    wait_for_stock,
    wish,
    without_status,
)
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, get_unit, stock_pool, wait_unit_phase
from tests.support.units_api import spec_body

PASSWORD = "correct-horse-battery-staple"  # noqa: S105


@pytest.fixture(scope="module", autouse=True)
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, POOL, 2, specName=SPEC):
        yield


async def test_somebody_elses_program_rents_after_a_crash_previews_changes_puts_back_and_gives_back(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path
) -> None:
    await wait_for_stock(kube)
    project = create_project(cluster, tmp_path, **wish("declared"), PASSWORD=PASSWORD)
    assert "+ 2 to create" in project.succeed("preview")
    assert await find(kube, GPU_UNITS.item("declared", INSTANCES)) is None
    assert await claims_for(kube, "declared") == 0

    project.settings["GPU_PLATFORM_FAULT"] = "provider.stock-claimed"
    project.fail("up", "--yes", "--skip-preview")
    assert await claims_for(kube, "declared") == 1
    assert await find(kube, GPU_UNITS.item("declared", INSTANCES)) is None
    del project.settings["GPU_PLATFORM_FAULT"]
    project.up()
    unit = await wait_unit_phase(kube, "declared", "Ready")
    annotations = annotations_of(unit)
    assert annotations[names.ANNOTATION_OWNER_STACK] == "shop/test"
    assert annotations[names.ANNOTATION_SOURCE_STOCK_NAME].startswith(f"{POOL}-")
    assert json.loads(annotations[names.ANNOTATION_ACCEPTED_SPEC]) == unit["spec"]
    project.succeed("preview", "--refresh", "--expect-no-changes")
    state = project.state_file.read_text()
    assert "ciphertext" in state
    assert PASSWORD not in state

    say(project, image="example/newer")
    shown = project.succeed("preview", "--diff")
    assert 'image: "example/train" => "example/newer"' in shown
    assert without_status(await get_unit(kube, "declared")) == without_status(unit)
    project.up()
    updated = await get_unit(kube, "declared")
    assert updated["spec"]["image"] == "example/newer"
    assert json.loads(annotations_of(updated)[names.ANNOTATION_ACCEPTED_SPEC]) == updated["spec"]

    await kube.patch(GPU_UNITS.item("declared", INSTANCES), {"spec": {"image": "example/by-hand"}})
    assert '"example/newer" => "example/by-hand"' in project.succeed("refresh", "--preview-only", "--diff")
    assert "~ 1 updated" in project.up("--refresh")
    assert (await get_unit(kube, "declared"))["spec"]["image"] == "example/newer"

    project.destroy()
    assert await find(kube, GPU_UNITS.item("declared", INSTANCES)) is None


def test_wrong_inputs_are_named_before_anything_is_done(cluster: RunningCluster, tmp_path: Path) -> None:
    ports = [{"name": "web", "port": 99_999}]
    project = create_project(cluster, tmp_path, **wish("wrong", template={"ports": ports}, colour="red"))
    wrong = project.fail("preview")

    assert "should be less than or equal to 65535" in wrong
    assert "property spec.template.ports[0].port" in wrong
    assert "property spec.colour" in wrong


def test_the_cli_prints_the_schema(cluster: RunningCluster, tmp_path: Path) -> None:
    project = create_project(cluster, tmp_path)
    schema = json.loads(project.succeed("package", "get-schema", str(BIN / "pulumi-resource-gpuplatform")))

    assert schema["resources"][GPU_UNIT]["requiredInputs"] == ["name", "spec"]
    assert schema["types"]["gpuplatform:index:GPUUnitSpec"]["required"] == ["specName"]
