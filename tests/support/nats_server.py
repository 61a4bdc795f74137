"""A nats-server of a test's own, which it may kill and start again on the same data."""

import asyncio
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpu_platform.clock import now_utc
from gpu_platform.devcluster.record import LOOPBACK
from gpu_platform.nats.connection import QueueAccess
from gpu_platform.nats.credentials import Keyring, mint_sidecar
from gpu_platform.nats.permissions import QueueUser
from tests.support.ports import free_port
from tests.support.waiting import eventually

STORED_BYTES = 20 << 30

CONFIGURATION = """\
listen: "{address}"
jetstream {{
  store_dir: "{data}"
  # Not by the size of the disk: what the streams reserve is not written yet.
  max_file_store: {stored_bytes}
  sync_interval: {sync}
}}
{more}
"""


WITHOUT_SIGXFSZ = ("env", "--block-signal=XFSZ")
"""Starts a command that gets an error when it exceeds RLIMIT_FSIZE, as on a full disk. Go programs die of the signal
otherwise."""


def forbid_writes(pid: int) -> None:
    """No file of this process may grow: writes fail as on a full disk, and no other process or user is needed."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def allow_writes(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class QueueServer:
    """Lets everybody in, unless it has a ring of keys."""

    def __init__(
        self,
        directory: Path,
        port: int,
        keyring: Keyring | None = None,
        sync: str = "always",
        more: str = "",
        stored_bytes: int = STORED_BYTES,
    ) -> None:
        self._directory = directory
        self._keyring = keyring
        self._configuration = directory / "nats.conf"
        self._address = f"{LOOPBACK}:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        more += "\n" + (keyring.render_server(now_utc()) if keyring else "")
        self._configuration.write_text(
            CONFIGURATION.format(
                address=self._address, data=directory / "data", sync=sync, more=more, stored_bytes=stored_bytes
            )
        )
        self.url = f"nats://{self._address}"

    def access_of(self, user: QueueUser) -> QueueAccess:
        assert self._keyring is not None
        return self.access_with(user, self._keyring.credentials_of(user, now_utc()).render())

    def sidecar_access(self, tenant: str, function: str) -> QueueAccess:
        assert self._keyring is not None
        credentials = mint_sidecar(self._keyring.workers, tenant, function, now_utc())
        return self.access_with(f"{tenant}_{function}", credentials)

    def access_with(self, name: str, credentials: str) -> QueueAccess:
        file = self._directory / f"{name}.creds"
        file.write_text(credentials)
        return QueueAccess(self.url, file)

    async def start(self) -> None:
        binary = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        assert binary is not None
        command = [*WITHOUT_SIGXFSZ, binary, "--config", str(self._configuration)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        await eventually(self._answers)

    def fill_disk(self) -> None:
        """It can write to no file any more, as on a full disk; the disk itself has room. Restarted, it can."""
        assert self._process is not None
        forbid_writes(self._process.pid)

    def empty_disk(self) -> None:
        assert self._process is not None
        allow_writes(self._process.pid)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)

    async def _answers(self) -> bool:
        host, _, port = self._address.partition(":")
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


@asynccontextmanager
async def queue_server(
    directory: Path,
    *,
    keyring: Keyring | None = None,
    sync: str = "always",
    more: str = "",
    stored_bytes: int = STORED_BYTES,
) -> AsyncIterator[QueueServer]:
    server = QueueServer(directory, free_port(), keyring, sync, more, stored_bytes)
    await server.start()
    try:
        yield server
    finally:
        server.kill()
