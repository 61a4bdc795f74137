"""`make demo`: the platform at work from nothing to the end, with what is really there. Stops what it started."""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from rich.console import Console

from gpu_platform.adapters.claims import claim_first
from gpu_platform.adapters.kube import KubeClient, KubeError, ResourcePath, open_client
from gpu_platform.adapters.kube.paths import DEPLOYMENTS, GPU_UNITS, PODS, STOCK_POOLS
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.environment import cluster_environment
from gpu_platform.devcluster.record import get_record
from gpu_platform.devcluster.status import read_status
from gpu_platform.domain import names
from gpu_platform.domain.stock import rank_stock

Json = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parents[1]
MANIFESTS = REPOSITORY / "examples" / "manifests"
PLATFORM = str(Path(sys.executable).with_name("gpu-platform"))
INSTANCES = names.DEFAULT_INSTANCE_NAMESPACE
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.02

console = Console(highlight=False)


def main() -> None:
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-demo-") as root:
        place = ClusterDirectory(Path(root) / "cluster")
        option = ("--dir", str(place.root))
        try:
            step("Start real etcd, Kubernetes, NATS, simulated GPU nodes and the host node")
            run(PLATFORM, "dev", "up", *option)
            os.environ.update(cluster_environment(place, get_record(place), os.environ["PATH"]))
            step("Bootstrap with Pulumi")
            run("pulumi", "stack", "select", "--create", "dev")
            run("pulumi", "up", "--yes", "--skip-preview", "--suppress-progress")
            asyncio.run(show_platform(place))
            step("What runs")
            run(PLATFORM, "dev", "status", *option)
        finally:
            step("Stop everything")
            run(PLATFORM, "dev", "down", *option)
    console.print(f"\n[bold green]done[/] in {time.monotonic() - started_at:.0f} s")


async def show_platform(place: ClusterDirectory) -> None:
    async with await open_client(place.kubeconfig) as kube:
        step("Fill a pool of warm stock on the host node")
        await create(kube, STOCK_POOLS, load("host-stock.yaml"))
        pool = await until(lambda: find_pool(kube, available=2))
        console.print(f"  {pool['status']['available']} units hold their GPUs and wait")

        step("Take one: claim it, and hand its GPU to a unit")
        started_at = time.monotonic()
        stock = await claim(kube)
        unit = load("host-unit.yaml")
        unit["metadata"]["annotations"] = {names.ANNOTATION_SOURCE_STOCK_NAME: stock["metadata"]["name"]}
        await create(kube, GPU_UNITS, unit)
        ready = await until(lambda: find_ready_unit(kube))
        console.print(f"  Ready after {time.monotonic() - started_at:.2f} s on node {ready['status']['nodeName']}")
        console.print(f"  {ready['status']['accessURL']}")
        url = await real_url(kube)
        console.print(f"  GET {url} (its real address here) answers {await fetch(url)}")
        await until(lambda: find_pool(kube, available=2))
        console.print("  the pool is full again")

        step("Make drift: delete the unit's Deployment behind its back")
        deployment = DEPLOYMENTS.item(names.child_name("web"), INSTANCES)
        old = await kube.get(deployment)
        deleted_at = time.monotonic()
        await kube.delete(deployment)
        await until(lambda: find_other(kube, deployment, old["metadata"]["uid"]))
        console.print(f"  it is back after {time.monotonic() - deleted_at:.2f} s")
        await until(lambda: find_ready_unit(kube))

        step("kill -9 of etcd: it comes back with everything in it")
        etcd = next(process for process in read_status(place).processes if process.name == "etcd")
        if etcd.pid is None:
            raise SystemExit("etcd does not run")
        os.kill(etcd.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        await until(lambda: find_ready_unit(kube))
        console.print(f"  the unit is still Ready, {time.monotonic() - killed_at:.1f} s later")


def load(manifest: str) -> Json:
    return dict(yaml.safe_load((MANIFESTS / manifest).read_text()))


async def create(kube: KubeClient, path: ResourcePath, body: Json) -> None:
    await kube.create(path.collection(body["metadata"]["namespace"]), body)


async def claim(kube: KubeClient) -> Json:
    units = (await kube.get(GPU_UNITS.collection(names.STOCK_NAMESPACE)))["items"]
    holder = names.claim_holder(INSTANCES, "web")
    stock = await claim_first(kube, rank_stock(units, "host.1"), holder, "demo", datetime.now(UTC))
    if stock is None:
        raise SystemExit("no free stock")
    return stock


async def find_pool(kube: KubeClient, available: int) -> Json | None:
    pool = await kube.get(STOCK_POOLS.item("host", names.STOCK_NAMESPACE))
    return pool if pool.get("status", {}).get("available") == available else None


async def find_ready_unit(kube: KubeClient) -> Json | None:
    unit = await kube.get(GPU_UNITS.item("web", INSTANCES))
    return unit if unit.get("status", {}).get("phase") == "Ready" else None


async def find_other(kube: KubeClient, path: str, uid: str) -> Json | None:
    item = await kube.get(path)
    return item if item["metadata"]["uid"] != uid else None


async def real_url(kube: KubeClient) -> str:
    pods = await kube.get(PODS.collection(INSTANCES), {"labelSelector": f"{names.LABEL_UNIT}=web"})
    return f"http://{pods['items'][0]['metadata']['annotations'][names.ANNOTATION_HOST_ADDRESS]}:8000/"


async def until(question: Callable[[], Awaitable[Json | None]]) -> Json:
    """Ask until there is an answer, however long the API server is away meanwhile."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(KubeError):
            if answer := await question():
                return answer
        await asyncio.sleep(POLL_SECONDS)
    raise SystemExit(f"it did not come about within {WAIT_SECONDS:.0f} s")


async def fetch(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return f"{response.status} {response.reason}"


def step(title: str) -> None:
    console.print(f"\n[bold cyan]▸ {title}[/]")


def run(*command: str) -> None:
    shown = shlex.join([Path(command[0]).name, *command[1:]])
    console.print(f"  [dim]$ {shown}[/]", soft_wrap=True)
    subprocess.run(command, cwd=REPOSITORY, check=True)


if __name__ == "__main__":
    main()
