"""The directory of a cluster: where everything lies, files that are written whole, and the locks on it."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

RETRY_SECONDS = 0.02


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace the file in one step. Private by default: most of what the cluster writes is a secret."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Wait for the lock, hold it, free it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def try_exclusive_lock(path: Path, patience_seconds: float = 0.0) -> Iterator[bool]:
    """Take the lock if it is free, or becomes free within this time; say whether it was taken."""
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
    """Takes the lock for a moment if it is free."""
    if not path.exists():
        return False
    with try_exclusive_lock(path) as was_free:
        return not was_free


@dataclass(frozen=True)
class ClusterDirectory:
    """The paths of one cluster. Two directories are two clusters that know nothing of each other."""

    root: Path

    @property
    def record(self) -> Path:
        """Identity, ports, passwords and inventory: written by `up`, read by everybody, kept over restarts."""
        return self.root / "cluster.json"

    @property
    def status(self) -> Path:
        """What runs now: written by the supervisor at every change."""
        return self.root / "status.json"

    @property
    def up_lock(self) -> Path:
        """Held while somebody starts or stops the cluster."""
        return self.root / "up.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor as long as it lives; the kernel frees it, whatever the death."""
        return self.root / "supervisor.lock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def etcd_data(self) -> Path:
        return self.root / "data" / "etcd"

    @property
    def nats_data(self) -> Path:
        return self.root / "data" / "nats"

    @property
    def volumes(self) -> Path:
        """The data of claims, a directory each."""
        return self.root / "volumes"

    @property
    def nats_identity(self) -> Path:
        """Keys and credentials of NATS."""
        return self.root / "nats"

    @property
    def nats_config(self) -> Path:
        return self.root / "nats.conf"

    @property
    def audit_policy(self) -> Path:
        return self.root / "audit-policy.yaml"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pulumi_state(self) -> Path:
        return self.root / "pulumi"

    @property
    def stacks(self) -> Path:
        """The stack worker's: work directories, and the units' stacks in `state`."""
        return self.root / "stacks"

    @property
    def pulumi_home(self) -> Path:
        return self.root / "pulumi-home"

    @property
    def pulumi_passphrase(self) -> Path:
        return self.root / "pulumi-passphrase"

    def log_of(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def create(self) -> None:
        private = (self.root, self.pki, self.nats_identity)
        for path in (*private, self.etcd_data, self.nats_data, self.logs, self.pulumi_state):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
