"""Asking the parts whether they are ready."""

import ssl
from datetime import datetime

import aiohttp

from gpu_platform.devcluster.credentials import key_pair
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.processes import Finished, HttpReady, NodeReady
from gpu_platform.domain.conditions import is_true
from gpu_platform.kube import KubeError, open_client
from gpu_platform.kube.paths import LEASES, NODES

QUESTION_SECONDS = 2.0


def admin_tls(directory: ClusterDirectory) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=key_pair(directory.pki, "ca").certificate)
    admin = key_pair(directory.pki, "admin")
    context.load_cert_chain(admin.certificate, admin.key)
    return context


async def is_ready(
    directory: ClusterDirectory, question: HttpReady | NodeReady | Finished, tls: ssl.SSLContext, since: datetime
) -> bool:
    """Whether the process that was started at `since` answers; what an earlier one left behind does not count."""
    match question:
        case HttpReady(url):
            return await _answers(url, tls)
        case NodeReady(name):
            return await _node_is_ready(directory, name, since)
        case Finished():
            # Only its end says so.
            return False


async def _answers(url: str, tls: ssl.SSLContext) -> bool:
    timeout = aiohttp.ClientTimeout(total=QUESTION_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=tls) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _node_is_ready(directory: ClusterDirectory, name: str, since: datetime) -> bool:
    try:
        async with await open_client(directory.kubeconfig) as kube:
            node = await kube.get(NODES.item(name), timeout=QUESTION_SECONDS)
            lease = await kube.get(LEASES.item(name, "kube-node-lease"), timeout=QUESTION_SECONDS)
    except KubeError:
        return False
    renewed_at = datetime.fromisoformat(lease["spec"]["renewTime"])
    return is_true(node, "Ready") and renewed_at >= since
