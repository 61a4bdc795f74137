"""The fixtures of every test on real parts: one cluster per test process, a fresh namespace for every test."""

import secrets
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from gpu_platform.kube import KubeClient, open_client
from tests.support.api import open_api
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.namespaces import tenant_namespace_of


@pytest.fixture(scope="session")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
async def kube(cluster: RunningCluster) -> AsyncIterator[KubeClient]:
    async with await open_client(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    async with tenant_namespace_of(kube, name):
        yield name


@pytest.fixture(scope="session")
async def api(cluster: RunningCluster) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the cluster's API process, with a key of every role."""
    async with open_api(cluster.record.platform_url, cluster.record.api_key) as client:
        yield client
