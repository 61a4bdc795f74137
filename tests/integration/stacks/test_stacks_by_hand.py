"""A person runs Pulumi on a unit's stack, with the plugin, and sees what the worker recorded."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import stacks
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, PatchType
from gpu_platform.kube.paths import GPU_UNITS
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.stack_workers import (
    PASSPHRASE,
    StackPlace,
    clear_index,
    stack_worker,
    unit_stack,
    wait_recorded,
)
from tests.support.units_and_stock import INSTANCES, ensure_spec, get_unit, stock_pool, wait_pool_available
from tests.support.units_api import SPEC, post_ready_unit, remove_unit, spec_body
from tests.support.waiting import NotYet, eventually


@pytest.fixture
async def place(kube: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StackPlace]:
    await clear_index(kube)
    await ensure_spec(kube, spec_body(SPEC))
    async with stock_pool(kube, "by-hand", 1, specName=SPEC):
        yield StackPlace(tmp_path_factory.mktemp("stacks"))


async def by_hand(cluster: RunningCluster, place: StackPlace, *arguments: str) -> tuple[int, str]:
    environment = {
        **os.environ,
        **cluster.environment(os.environ["PATH"]),
        "GPU_PLATFORM_STACK_WORKER_BACKEND_URL": place.url,
        "GPU_PLATFORM_STACK_WORKER_STATE_DIRECTORY": str(place.root / "shell"),
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
    }
    environment.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpu_platform.cli", "stack", "gpu-unit/default.by-hand", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def find_settled_pool(kube: KubeClient) -> Json | NotYet:
    """Full, and with no claim: the end of a hand-off changes its status once more."""
    pool = await wait_pool_available(kube, "by-hand", 1)
    return pool if not pool["status"].get("claimed") else NotYet(pool["status"])


def list_files() -> set[Path]:
    return {path for path in Path(stacks.__file__).parent.rglob("*") if "__pycache__" not in path.parts}


async def test_after_the_hand_off_neither_refresh_nor_preview_sees_a_change_and_drift_is_seen(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, place: StackPlace
) -> None:
    async with stack_worker(cluster, place):
        await post_ready_unit(api, "by-hand")
        spec = (await get_unit(kube, "by-hand"))["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
        await wait_recorded(kube, unit_stack("by-hand"), spec)
        pool = await eventually(lambda: find_settled_pool(kube))

    ours = list_files()
    for verb in (["refresh", "--preview-only"], ["preview"]):
        code, output = await by_hand(cluster, place, *verb, "--non-interactive", "--expect-no-changes")
        assert code == 0, output
    assert (await wait_pool_available(kube, "by-hand", 1))["status"] == pool["status"]
    # Pulumi keeps a settings file of the stack beside its project; an installed package is not the place for it.
    assert list_files() == ours
    project = place.root / "shell" / "by-hand" / "gpu-unit"
    assert {path.name for path in project.iterdir()} >= {"Pulumi.yaml", "Pulumi.default.by-hand.yaml"}

    path = GPU_UNITS.item("by-hand", INSTANCES)
    # Which would put it back at once.
    with frozen(cluster, "reconciler"):
        await kube.patch(path, {"spec": {"image": "example/edited"}}, PatchType.MERGE)
        code, output = await by_hand(cluster, place, "refresh", "--preview-only", "--non-interactive", "--diff")
        assert (await get_unit(kube, "by-hand"))["spec"]["image"] == "example/edited"
    assert code == 0, output
    assert "example/edited" in output

    await remove_unit(api, kube, "by-hand")
    await clear_index(kube)
