"""Embedded clusters for tests: each has its own directory, ports and addresses, and ends with the test process."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

from gpu_platform.devcluster import lifecycle
from gpu_platform.devcluster.configuration import cluster_environment, kubeconfig_of
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.parts import ensure_parts
from gpu_platform.devcluster.record import ClusterRecord
from gpu_platform.domain.rbac import API_ACCOUNT, STACK_WORKER_ACCOUNT
from tests.support import rbac_usage
from tests.support.api import know_listeners
from tests.support.processes import watched_directory

NODES = 4
GPUS = 8

TAKEOVER = timedelta(seconds=9)
"""When the reconciler finishes an operation that the API did not. The API works on one for 8 s at most, and on a busy
machine it takes them."""

QUICK_SETTINGS = {
    # A tenth of the defaults, where a busy machine can stand it. Leases keep their length: only tests of a takeover
    # shorten them, for reconcilers of their own.
    "GPU_PLATFORM_RECONCILER_OPERATION_TAKEOVER_SECONDS": str(TAKEOVER.seconds),
    "GPU_PLATFORM_RECONCILER_ORPHAN_LIMIT_SECONDS": "3",
    "GPU_PLATFORM_RECONCILER_QUEUE_GRACE_SECONDS": "3",
    # All tests come from one address.
    "GPU_PLATFORM_API_FAILED_LOGINS_PER_MINUTE": "1000000",
    # Processes are killed here, machines are not: what was written survives without a sync.
    "ETCD_UNSAFE_NO_FSYNC": "true",
}
"""What the processes of a test's cluster find in their environment."""


@dataclass(frozen=True)
class RunningCluster:
    directory: ClusterDirectory
    record: ClusterRecord

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.directory.kubeconfig

    @property
    def api_kubeconfig(self) -> Path:
        """Of the API's ServiceAccount: with its roles, and no others."""
        return kubeconfig_of(self.directory, API_ACCOUNT)

    @property
    def stack_worker_kubeconfig(self) -> Path:
        return kubeconfig_of(self.directory, STACK_WORKER_ACCOUNT)

    def environment(self, path: str) -> dict[str, str]:
        return cluster_environment(self.directory, self.record, path)


@contextmanager
def running_cluster(*, nodes: int = NODES, gpus: int = GPUS, platform: bool = True) -> Iterator[RunningCluster]:
    """Starts a cluster and stops it at the end of the block; leaves nothing on disk, also when this process is killed.

    Without `platform` it is Kubernetes and NATS only, without even the platform's namespaces.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as root:
        directory = ClusterDirectory(Path(root) / "cluster")
        # Without the stack worker: Pulumi would take half of the cores from the tests of everything else.
        wish = lifecycle.Wish(nodes=nodes, gpus=gpus, platform=platform, stack_worker=False, tied=True)
        with patch.dict(os.environ, QUICK_SETTINGS):
            record = lifecycle.up(directory, ensure_parts(), wish)
        know_listeners(record)
        try:
            with watched_directory(directory.logs):
                yield RunningCluster(directory, record)
        finally:
            lifecycle.down(directory)
            rbac_usage.note_usage(directory.logs)
