"""`gpu-platform restore` as a person runs it, the locks that Pulumi's processes leave behind, and the story of a lost
cluster in two sizes: what was rented on it, and how little of it is left.
"""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.stacks import StackAddress
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_SPECS, GPU_UNITS, OPERATIONS
from gpu_platform.store.stack_leases import PATHS
from stacks.runner.backend import StackFiles, shard_of
from tests.support.api import UNITS, unit_request
from tests.support.clusters import RunningCluster
from tests.support.functions import FUNCTIONS, build_function_request, remove_function
from tests.support.operator_api import POOLS, remove, remove_pool, wait_job
from tests.support.stack_workers import (
    PASSPHRASE,
    StackPlace,
    clear_index,
    function_stack,
    pool_stack,
    stack_worker,
    unit_stack,
    wait_recorded,
)
from tests.support.units_and_stock import INSTANCES, STOCK, ensure_spec
from tests.support.units_api import delete_operations, spec_body
from tests.support.waiting import eventually


@dataclass(frozen=True)
class Told:
    """What a restore said at its end."""

    code: int
    output: str
    errors: str

    def results(self) -> dict[str, str]:
        """By stack."""
        return {each["stack"]: each["result"] for each in json.loads(self.output)["stacks"]}

    def reason_of(self, stack: str) -> str:
        [reason] = [each["reason"] for each in json.loads(self.output)["stacks"] if each["stack"] == stack]
        return str(reason)

    def plan(self) -> dict[str, str]:
        return {each["stack"]: each["action"] for each in json.loads(self.output)["plan"]}


@asynccontextmanager
async def restoring(
    cluster: RunningCluster,
    place: StackPlace,
    *options: str,
    fault: str | None = None,
    passphrase: str = PASSPHRASE,
    parallel: int = 2,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Killed at the end of the block, if it still runs."""
    prefix = "GPU_PLATFORM_STACK_WORKER_"
    environment = {
        **os.environ,
        **cluster.environment(os.environ["PATH"]),
        "PULUMI_CONFIG_PASSPHRASE": passphrase,
        f"{prefix}BACKEND_URL": place.url,
        f"{prefix}STATE_DIRECTORY": str(place.root / "restore"),
        f"{prefix}LEASE_SECONDS": "6",
        f"{prefix}PARALLEL": str(parallel),
        **({"GPU_PLATFORM_FAULT": fault} if fault else {}),
    }
    environment.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpu_platform.cli", "restore", *options),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def restore(
    cluster: RunningCluster, place: StackPlace, *options: str, fault: str | None = None, passphrase: str = PASSPHRASE
) -> Told:
    async with restoring(cluster, place, *options, fault=fault, passphrase=passphrase) as process:
        output, errors = await process.communicate()
        return Told(process.returncode or 0, output.decode(), errors.decode())


def plant_lock(place: StackPlace, address: StackAddress, *, pid: int, host: str | None = None) -> Path:
    """As Pulumi's CLI writes one."""
    directory = StackFiles(place.backend / shard_of(address.stack), address).locks
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{secrets.token_hex(16)}.json"
    content = {
        "pid": pid,
        "username": "somebody",
        "hostname": host or socket.gethostname(),
        "timestamp": datetime.now(UTC).isoformat(),
    }
    file.write_text(json.dumps(content))
    return file


@contextmanager
def working_on(stack: str) -> Iterator[int]:
    """The pid of a process that might be a Pulumi at work on this stack."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", stack])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def dead_pid() -> int:
    """Of a process that was there, and is no more."""
    with working_on("") as pid:
        return pid


SPEC_NAMES = ("again-a.0", "again-b.0")
REFILLING, SEEDED = "again-a", "again-b"
"""Pools: one that is filled up again, and holds less than is rented; one that was made once, with one unit to spare."""

FUNCTION = build_function_request("again-words", specName=SPEC_NAMES[0], maxWorkers=2)


@dataclass(frozen=True)
class Story:
    per_pool: int
    """Units that were rented from each of the two pools; at least four."""

    moments: tuple[str, ...]
    """Around Pulumi, at which a restore dies."""

    @property
    def refilled(self) -> int:
        return self.per_pool * 2 // 5

    @property
    def halfway(self) -> int:
        """After so many more units a restore is interrupted, or killed. There are enough for both."""
        return self.per_pool // 2 - 2

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(f"again-{kind}-{number:02}" for kind in "ab" for number in range(self.per_pool))

    @property
    def pool_requests(self) -> tuple[Json, Json]:
        return (
            {"operationID": "op-again-a", "name": REFILLING, "specName": SPEC_NAMES[0], "replicas": self.refilled},
            {
                "operationID": "op-again-b",
                "name": SEEDED,
                "specName": SPEC_NAMES[1],
                "replicas": self.per_pool + 1,
                "replenish": "Never",
            },
        )

    @property
    def stacks(self) -> set[StackAddress]:
        others = (function_stack("again-words"), pool_stack(REFILLING), pool_stack(SEEDED))
        return {*map(unit_stack, self.units), *others}


@dataclass(frozen=True)
class Lost:
    """What is left of the first cluster."""

    story: Story
    place: StackPlace
    infra_state: Path
    accepted: dict[StackAddress, str]
    """The accepted spec of each unit, function and pool."""


def build_wish(name: str) -> Json:
    spec = SPEC_NAMES[0 if name.startswith("again-a") else 1]
    ports = [{"name": "http", "port": 8000}]
    return unit_request(name, specName=spec, image=f"example/{name}", template={"ports": ports})


async def ensure_specs(kube: KubeClient) -> None:
    """Without GPUs, so that they fit beside whatever other tests have."""
    for name in SPEC_NAMES:
        await ensure_spec(kube, spec_body(name, cpu="10m", memory="16Mi", gpu=0))


async def lose(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient, directory: Path, story: Story
) -> Lost:
    """What was made on this cluster for the story is gone again, but for the Pulumi state."""
    await clear_index(kube)
    place = StackPlace(directory)
    await ensure_specs(kube)
    async with stack_worker(cluster, place):
        for request in story.pool_requests:
            assert (await api.post(POOLS, json=request)).status_code == 202
            await wait_job(api, request["operationID"])
        assert (await api.post(FUNCTIONS, json=FUNCTION)).status_code == 201
        for name in story.units:
            # A pool may have to refill in between.
            await eventually(partial(_is_accepted, api, name), every=0.2)
        accepted = await read_accepted(kube, story)
        for address, spec in accepted.items():
            await wait_recorded(kube, address, spec)
    place.keep_only(story.stacks)
    infra_state = place.root / "infra-state"
    shutil.copytree(cluster.directory.pulumi_state, infra_state)
    await _clear_away(api, kube, story)
    return Lost(story, place, infra_state, accepted)


async def read_accepted(kube: KubeClient, story: Story) -> dict[StackAddress, str]:
    specs = {}
    for address in story.stacks:
        item = await kube.get(PATHS[address.kind].item(address.name, address.namespace))
        specs[address] = annotations_of(item)[names.ANNOTATION_ACCEPTED_SPEC]
    return specs


async def _is_accepted(api: httpx.AsyncClient, name: str) -> bool:
    return (await api.post(UNITS, json=build_wish(name))).status_code in (200, 201)


async def _clear_away(api: httpx.AsyncClient, kube: KubeClient, story: Story) -> None:
    await remove_function(api, kube, "again-words")
    for name in story.units:
        assert (await api.delete(f"{UNITS}/{name}")).status_code == 204

    async def are_gone() -> bool:
        units = (await kube.get(GPU_UNITS.collection(INSTANCES)))["items"]
        return not {unit["metadata"]["name"] for unit in units} & set(story.units)

    await eventually(are_gone)
    for pool in (REFILLING, SEEDED):
        await remove_pool(kube, pool)
    for name in SPEC_NAMES:
        await remove(kube, GPU_SPECS.item(name))
    for name in story.units:
        await delete_operations(kube, name)
    for request in story.pool_requests:
        await remove(kube, OPERATIONS.item(operation_name("", request["operationID"]), STOCK))
    await clear_index(kube)
