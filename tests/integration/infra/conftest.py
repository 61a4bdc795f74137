"""The fixtures of the bootstrap's tests: of each module, a cluster with nothing of the platform and a stack for it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from gpu_platform.kube import KubeClient, open_client
from tests.support.bootstrap import BootstrapStack
from tests.support.clusters import RunningCluster, running_cluster


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[RunningCluster]:
    """Kubernetes and nothing else: not even the namespaces of the platform."""
    with running_cluster(platform=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def bare_kube(bare_cluster: RunningCluster) -> AsyncIterator[KubeClient]:
    async with await open_client(bare_cluster.kubeconfig) as client:
        yield client


@pytest.fixture(scope="module")
def stack(bare_cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> BootstrapStack:
    return BootstrapStack(bare_cluster, tmp_path_factory.mktemp("stack"))
