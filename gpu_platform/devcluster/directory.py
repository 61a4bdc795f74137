"""The directory of a cluster: where everything lies, files that are written whole, and the locks on it."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

RETRY_SECONDS = 0.02


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Waits for the lock, and holds it while the block runs."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def try_exclusive_lock(path: Path, patience_seconds: float = 0.0) -> Iterator[bool]:
    """Takes the lock if it is free, or becomes free within this time; yields whether it was taken."""
    with path.open("w") as file:
        yield _take(file, time.monotonic() + patience_seconds)


def _take(file: IO[str], until: float) -> bool:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(RETRY_SECONDS)


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock. Takes it for a moment if it is free."""
    if not path.exists():
        return False
    with try_exclusive_lock(path) as was_free:
        return not was_free


class ClusterDirectory:
    """The paths of one cluster. Two directories are two clusters that know nothing of each other."""

    def __init__(self, root: Path) -> None:
        self.root = root

        self.record = root / "cluster.json"
        """Identity, ports, passwords and inventory: written by `up`, read by every command, kept over restarts."""

        self.status = root / "status.json"
        """What runs now: written by the supervisor at every change."""

        self.up_lock = root / "up.lock"
        """Held while a command starts or stops the cluster."""

        self.supervisor_lock = root / "supervisor.lock"
        """Held by the supervisor as long as it lives; the kernel frees it when the supervisor dies."""

        self.kubeconfig = root / "kubeconfig"
        """The administrator's."""

        self.pki = root / "pki"
        self.etcd_data = root / "data" / "etcd"
        self.nats_data = root / "data" / "nats"

        self.volumes = root / "volumes"
        """The data of PVCs, a directory each."""

        self.nats_identity = root / "nats"
        """Keys and credentials of NATS."""

        self.nats_config = root / "nats.conf"
        self.logs = root / "logs"
        self.audit_policy = root / "audit-policy.yaml"
        self.audit_log = self.logs / "audit.log"
        self.pulumi_state = root / "pulumi"
        self.pulumi_home = root / "pulumi-home"
        self.pulumi_passphrase = root / "pulumi-passphrase"

        self.stacks = root / "stacks"
        """The stack worker's: work directories, and the units' stacks in `state`."""

    def log_of(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def create(self) -> None:
        private = (self.root, self.pki, self.nats_identity)
        for path in (*private, self.etcd_data, self.nats_data, self.logs, self.pulumi_state):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
