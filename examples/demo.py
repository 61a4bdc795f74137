"""`make demo`: the platform at work from nothing to the end, with what is really there. Stops what it started."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from rich.console import Console

from gpu_platform.adapters.kube import KubeClient, ResourcePath
from gpu_platform.adapters.kube.paths import CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.environment import cluster_environment
from gpu_platform.devcluster.record import get_record
from gpu_platform.devcluster.status import read_status

REPOSITORY = Path(__file__).resolve().parents[1]
MANIFESTS = REPOSITORY / "examples" / "manifests"
HOST_ADDRESS = "runtime.lokiwager.io/host-address"
PLURALS: dict[str, ResourcePath] = {"Deployment": DEPLOYMENTS, "ConfigMap": CONFIG_MAPS, "Service": SERVICES}

console = Console(highlight=False)


def main() -> None:
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-demo-") as root:
        place = ClusterDirectory(Path(root) / "cluster")
        option = ("--dir", str(place.root))
        try:
            step("Start real etcd, Kubernetes, NATS, simulated GPU nodes and the host node")
            run("gpu-platform", "dev", "up", *option)
            os.environ.update(cluster_environment(place, get_record(place), os.environ["PATH"]))
            step("Bootstrap with Pulumi")
            run("pulumi", "stack", "select", "--create", "dev")
            run("pulumi", "up", "--yes", "--skip-preview", "--suppress-progress")
            asyncio.run(show_workloads(place))
            step("What runs")
            run("gpu-platform", "dev", "status", *option)
        finally:
            step("Stop everything")
            run("gpu-platform", "dev", "down", *option)
    console.print(f"\n[bold green]done[/] in {time.monotonic() - started_at:.0f} s")


async def show_workloads(place: ClusterDirectory) -> None:
    async with await KubeClient.from_kubeconfig(place.kubeconfig) as kube:
        step("Two GPUs on a simulated node")
        await create(kube, "two-gpus.yaml")
        pod = await ready_pod(kube, "two-gpus")
        console.print(f"  {pod['metadata']['name']} is Ready on {pod['spec']['nodeName']}")

        step("A web server that really runs, on the host node")
        await create(kube, "hello-host.yaml")
        pod = await ready_pod(kube, "hello")
        url = f"http://{pod['metadata']['annotations'][HOST_ADDRESS]}:8080/"
        console.print(f"  GET {url} → {await fetch(url)}")

        step("kill -9 of the API server: it comes back with everything in it")
        os.kill(next(process.pid or 0 for process in read_status(place).processes if is_api_server(process)), 9)
        killed_at = time.monotonic()
        again = await until(lambda: find_ready_pod(kube, "hello"))
        console.print(f"  {again['metadata']['name']} is there again after {time.monotonic() - killed_at:.1f} s")


def is_api_server(process: Any) -> bool:
    return bool(process.name == "kube-apiserver")


async def create(kube: KubeClient, manifest: str) -> None:
    for document in yaml.safe_load_all((MANIFESTS / manifest).read_text()):
        await kube.create(PLURALS[document["kind"]].collection("default"), document)


async def ready_pod(kube: KubeClient, app: str) -> dict[str, Any]:
    return await until(lambda: find_ready_pod(kube, app))
