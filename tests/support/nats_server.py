"""A nats-server of a test's own, which it may kill and start again on the same data."""

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpu_platform.adapters.clock import now_utc
from gpu_platform.adapters.queue.connection import QueueAccess
from gpu_platform.devcluster.ports import LOOPBACK
from gpu_platform.domain.queue_keyring import Keyring
from gpu_platform.domain.queue_permissions import QueueUser
from gpu_platform.domain.queue_tokens import mint_sidecar
from tests.support.ports import free_port
from tests.support.waiting import eventually

CONFIGURATION = """\
listen: "{address}"
jetstream {{
  store_dir: "{data}"
  sync_interval: {sync}
}}
{more}
"""


class QueueServer:
    """Lets everybody in, unless it has a ring of keys."""

    def __init__(
        self, directory: Path, port: int, keyring: Keyring | None = None, sync: str = "always", more: str = ""
    ) -> None:
        self._directory = directory
        self._keyring = keyring
        self._configuration = directory / "nats.conf"
        self._address = f"{LOOPBACK}:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        more += "\n" + (keyring.render_server(now_utc()) if keyring else "")
        self._configuration.write_text(
            CONFIGURATION.format(address=self._address, data=directory / "data", sync=sync, more=more)
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
        self._process = subprocess.Popen([binary, "--config", str(self._configuration)], stderr=subprocess.DEVNULL)
        await eventually(self._answers)

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
    directory: Path, *, keyring: Keyring | None = None, sync: str = "always", more: str = ""
) -> AsyncIterator[QueueServer]:
    server = QueueServer(directory, free_port(), keyring, sync, more)
    await server.start()
    try:
        yield server
    finally:
        server.kill()
