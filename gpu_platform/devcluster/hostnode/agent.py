"""One run of the agent, from its start to its orderly end: puts the parts together and decides nothing."""

import asyncio
import ipaddress
import logging
import os
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from gpu_platform.devcluster.child_process import CLUSTER_MARK, kill_marked
from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.devcluster.hostnode.addresses import PodNetwork
from gpu_platform.devcluster.hostnode.events import EventRecorder
from gpu_platform.devcluster.hostnode.heartbeat import Heartbeat, read_machine
from gpu_platform.devcluster.hostnode.names import HOST_NODE_MARK
from gpu_platform.devcluster.hostnode.pods.podset import PodSet
from gpu_platform.devcluster.hostnode.pods.worker import Surroundings
from gpu_platform.devcluster.hostnode.provisioner.provisioner import Provisioner
from gpu_platform.devcluster.hostnode.server import LogServer, ServerFiles
from gpu_platform.kube import KubeError, open_client

INHERITED_VARIABLES = ("PATH", "LANG", CLUSTER_MARK)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentSettings:
    kubeconfig: Path
    root: Path
    server_files: ServerFiles
    gpus: int
    cluster: str
    admin_kubeconfig: Path
    volumes: Path


async def run_agent(settings: AgentSettings, stop: asyncio.Event) -> None:
    """Run until `stop` is set. Raise `DevClusterError` for what the developer has to change first."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await open_client(settings.kubeconfig))
        check_is_local(client.server)
        network = PodNetwork.reserve(settings.cluster)
        stack.callback(network.close)
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        end_leftovers(settings.cluster)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        machine = read_machine(settings.gpus)
        recorder = EventRecorder(client)
        inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        inherited[HOST_NODE_MARK] = settings.cluster
        pods = PodSet(settings.root, network, Surroundings(client, recorder, session, machine.capacity, inherited))
        server = LogServer(pods, settings.server_files)
        stack.push_async_callback(server.stop)
        heartbeat = Heartbeat(client, machine, await server.start())
        admin = await stack.enter_async_context(await open_client(settings.admin_kubeconfig))
        check_is_local(admin.server)
        provisioner = Provisioner(admin, settings.volumes)
        log.info("pods get addresses in 127.%d.0.0/16", network.number)

        tasks = [asyncio.create_task(part.run()) for part in (heartbeat, pods, recorder, provisioner)]
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(KubeError):
            await heartbeat.stop()
        await pods.stop()
        end_leftovers(settings.cluster)


def end_leftovers(cluster: str) -> None:
    """Processes of pods whose leader or agent is gone."""
    if count := kill_marked(HOST_NODE_MARK, cluster):
        log.info("ended %d leftover processes", count)


def check_is_local(server: str) -> None:
    """Refuse a cluster that is not this machine's own: pods run here as the developer, without isolation."""
    host = urlsplit(server).hostname or ""
    if host == "localhost":
        return
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    raise DevClusterError(
        f"the host node is for development only and serves an API server on this machine, not {server}: "
        "give it the kubeconfig of an embedded cluster"
    )
