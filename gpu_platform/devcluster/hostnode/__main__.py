"""The agent: one run from its start to its orderly end. It puts the parts together and decides nothing.

The embedded cluster's supervisor starts it: `python -m gpu_platform.devcluster.hostnode`.
"""

import argparse
import asyncio
import logging
import os
import resource
import signal
import ssl
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.child_process import CLUSTER_MARK, kill_marked
from gpu_platform.devcluster.hostnode.log_server import LogServer
from gpu_platform.devcluster.hostnode.node import Heartbeat, PodNetwork, read_machine
from gpu_platform.devcluster.hostnode.pod_status import EventRecorder
from gpu_platform.devcluster.hostnode.pods import PodSet, Surroundings
from gpu_platform.devcluster.hostnode.processes import HOST_NODE_MARK
from gpu_platform.devcluster.hostnode.provisioner import Provisioner
from gpu_platform.domain.network import is_loopback
from gpu_platform.kube import KubeError, open_client

OPEN_FILES = 65_536
"""A container takes five file descriptors here; the usual 1024 would end at 200 of them."""

INHERITED_VARIABLES = ("PATH", "LANG", CLUSTER_MARK)
log = logging.getLogger(__name__)


class Options(argparse.Namespace):
    kubeconfig: Path
    root: Path
    tls_cert: Path
    tls_key: Path
    client_ca: Path
    gpus: int
    admin_kubeconfig: Path
    volumes: Path


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(_run(_parse_options()))
    except DevClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


def _parse_options() -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m gpu_platform.devcluster.hostnode",
        description="A node whose pods run as local processes. For development only.",
    )
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True, help="directory for the pods; keep it short")
    parser.add_argument("--tls-cert", type=Path, required=True)
    parser.add_argument("--tls-key", type=Path, required=True)
    parser.add_argument("--client-ca", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=8, help="simulated GPUs to advertise")
    parser.add_argument("--admin-kubeconfig", type=Path, required=True, help="as whom volumes are made")
    parser.add_argument("--volumes", type=Path, required=True, help="directory for the volumes")
    return parser.parse_args(namespace=Options())


async def _run(options: Options) -> None:
    """Runs until a signal. Raises `DevClusterError` for what the developer has to change first."""
    cluster = os.environ.get(CLUSTER_MARK)
    if not cluster:
        raise DevClusterError(f"set {CLUSTER_MARK} to the cluster's id: leftover processes are found by it")
    _raise_open_files()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await open_client(options.kubeconfig))
        check_is_local(client.server)
        network = PodNetwork.reserve(cluster)
        stack.callback(network.close)
        root = options.root.absolute()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        end_leftovers(cluster)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        machine = read_machine(options.gpus)
        recorder = EventRecorder(client)
        inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        inherited[HOST_NODE_MARK] = cluster
        pods = PodSet(root, network, Surroundings(client, recorder, session, machine.capacity, inherited))
        server = LogServer(pods, _build_tls(options))
        stack.push_async_callback(server.stop)
        heartbeat = Heartbeat(client, machine, await server.start())
        admin = await stack.enter_async_context(await open_client(options.admin_kubeconfig))
        check_is_local(admin.server)
        provisioner = Provisioner(admin, options.volumes.absolute())
        log.info("pods get addresses in 127.%d.0.0/16", network.number)

        tasks = [asyncio.create_task(part.run()) for part in (heartbeat, pods, recorder, provisioner)]
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(KubeError):
            await heartbeat.stop()
        await pods.stop()
        end_leftovers(cluster)


def _raise_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _build_tls(options: Options) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=options.client_ca)
    context.load_cert_chain(options.tls_cert, options.tls_key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def end_leftovers(cluster: str) -> None:
    """Ends processes of pods whose leader or agent is gone."""
    if count := kill_marked(HOST_NODE_MARK, cluster):
        log.info("ended %d leftover processes", count)


def check_is_local(server: str) -> None:
    """Refuses a cluster that is not this machine's own: pods run here as the developer, without isolation."""
    if not is_loopback(urlsplit(server).hostname or ""):
        raise DevClusterError(
            f"the host node is for development only and serves an API server on this machine, not {server}: "
            "give it the kubeconfig of an embedded cluster"
        )


if __name__ == "__main__":
    main()
