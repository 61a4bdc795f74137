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
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from rich.console import Console

from gpu_platform.adapters.kube import KubeClient, KubeError, open_client
from gpu_platform.adapters.kube.paths import CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.environment import cluster_environment
from gpu_platform.devcluster.record import get_record
from gpu_platform.devcluster.status import read_status

REPOSITORY = Path(__file__).resolve().parents[1]
MANIFESTS = REPOSITORY / "examples" / "manifests"
HOST_ADDRESS = "runtime.lokiwager.io/host-address"
KINDS = {"Deployment": DEPLOYMENTS, "ConfigMap": CONFIG_MAPS, "Service": SERVICES}

WAIT_SECONDS = 60.0
PLATFORM = str(Path(sys.executable).with_name("gpu-platform"))

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
            asyncio.run(show_workloads(place))
            step("What runs")
            run(PLATFORM, "dev", "status", *option)
        finally:
            step("Stop everything")
            run(PLATFORM, "dev", "down", *option)
    console.print(f"\n[bold green]done[/] in {time.monotonic() - started_at:.0f} s")


async def show_workloads(place: ClusterDirectory) -> None:
    async with await open_client(place.kubeconfig) as kube:
        step("Two GPUs on a simulated node")
        await create(kube, "two-gpus.yaml")
        pod = await ready_pod(kube, "two-gpus")
        console.print(f"  {pod['metadata']['name']} is Ready on {pod['spec']['nodeName']}")

        step("A web server that really runs, on the host node")
        await create(kube, "hello-host.yaml")
        pod = await ready_pod(kube, "hello")
        url = f"http://{pod['metadata']['annotations'][HOST_ADDRESS]}:8080/"
        console.print(f"  GET {url} says: {await fetch(url)}")

        step("kill -9 of etcd: it comes back with everything in it")
        etcd = next(process for process in read_status(place).processes if process.name == "etcd")
        if etcd.pid is None:
            raise SystemExit("etcd does not run")
        os.kill(etcd.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        again = await ready_pod(kube, "hello")
        console.print(f"  {again['metadata']['name']} is still there, {time.monotonic() - killed_at:.1f} s later")


async def create(kube: KubeClient, manifest: str) -> None:
    for document in yaml.safe_load_all((MANIFESTS / manifest).read_text()):
        await kube.create(KINDS[document["kind"]].collection("default"), document)


async def ready_pod(kube: KubeClient, app: str) -> dict[str, Any]:
    """Wait until the app's pod is Ready, however long the API server is away meanwhile."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(KubeError):
            pods = await kube.get(PODS.collection("default"), {"labelSelector": f"app={app}"})
            for pod in pods["items"]:
                if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])):
                    return dict(pod)
        await asyncio.sleep(0.1)
    raise SystemExit(f"{app} is not Ready after {WAIT_SECONDS:.0f} s")


async def fetch(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return (await response.text()).strip()


def step(title: str) -> None:
    console.print(f"\n[bold cyan]▸ {title}[/]")


def run(*command: str) -> None:
    console.print(f"  [dim]$ {shlex.join(command)}[/]")
    subprocess.run(command, cwd=REPOSITORY, check=True)


if __name__ == "__main__":
    main()
