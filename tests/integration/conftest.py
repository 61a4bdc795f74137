"""One embedded cluster for the whole session; a fresh namespace for every test."""

import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gpu_platform.adapters.kube import KubeClient, NotFoundError, open_client
from gpu_platform.adapters.kube.paths import NAMESPACES, SERVICE_ACCOUNTS
from gpu_platform.devcluster import lifecycle
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.environment import cluster_environment
from gpu_platform.devcluster.parts import ensure_parts
from gpu_platform.devcluster.record import ClusterRecord
from tests.integration.api import open_api
from tests.waiting import eventually

NODES = 4
GPUS = 8


@dataclass(frozen=True)
class RunningCluster:
    directory: ClusterDirectory
    record: ClusterRecord

    @property
    def kubeconfig(self) -> Path:
        return self.directory.kubeconfig

    def environment(self, path: str) -> dict[str, str]:
        return cluster_environment(self.directory, self.record, path)


@pytest.fixture(scope="session")
def cluster() -> Iterator[RunningCluster]:
    """Ends with this process, whatever its death, and leaves nothing on disk."""
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as root:
        directory = ClusterDirectory(Path(root) / "cluster")
        # Without the stack worker: Pulumi would take half of the cores from the tests of everything else.
        wish = lifecycle.Wish(nodes=NODES, gpus=GPUS, stack_worker=False, tied=True)
        record = lifecycle.up(directory, ensure_parts(), wish)
        try:
            yield RunningCluster(directory, record)
        finally:
            lifecycle.down(directory)


@pytest.fixture(scope="session")
async def kube(cluster: RunningCluster) -> AsyncIterator[KubeClient]:
    async with await open_client(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await kube.create(NAMESPACES.collection(), body)

    async def default_account_exists() -> bool:
        try:
            return bool(await kube.get(SERVICE_ACCOUNTS.item("default", name)))
        except NotFoundError:
            return False

    # Pods are refused until the controller manager has made the namespace's account.
    await eventually(default_account_exists)
    yield name
    await kube.delete(NAMESPACES.item(name))


@pytest.fixture(scope="session")
async def api(cluster: RunningCluster) -> AsyncIterator[httpx.AsyncClient]:
    """The session's own API process, with a key that opens everything."""
    async with open_api(cluster.record.platform_url, cluster.record.api_key) as client:
        yield client
