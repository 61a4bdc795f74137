"""The command line of the agent; the embedded cluster's supervisor starts it."""

import argparse
import asyncio
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.child_process import CLUSTER_MARK
from gpu_platform.devcluster.hostnode.agent import AgentSettings, ServerFiles, run_agent

OPEN_FILES = 65_536
"""A container takes five file descriptors here; the usual 1024 would end at 200 of them."""


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(_run(_parse_settings()))
    except DevClusterError as error:
        sys.exit(_refuse(error))


async def _run(settings: AgentSettings) -> None:
    _raise_open_files()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_agent(settings, stop)


def _parse_settings() -> AgentSettings:
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
    arguments = parser.parse_args()
    cluster = os.environ.get(CLUSTER_MARK)
    if not cluster:
        raise DevClusterError(f"set {CLUSTER_MARK} to the cluster's id: leftover processes are found by it")
    return AgentSettings(
        kubeconfig=arguments.kubeconfig,
        root=arguments.root.absolute(),
        server_files=ServerFiles(arguments.tls_cert, arguments.tls_key, arguments.client_ca),
        gpus=arguments.gpus,
        cluster=cluster,
        admin_kubeconfig=arguments.admin_kubeconfig,
        volumes=arguments.volumes.absolute(),
    )


def _raise_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _refuse(error: DevClusterError) -> int:
    sys.stderr.write(f"error: {error}\n")
    return 2


if __name__ == "__main__":
    main()
