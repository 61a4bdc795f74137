"""A nats-server of a test's own, which it may kill and start again on the same data."""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpu_platform.devcluster.ports import LOOPBACK
from tests.waiting import eventually

CONFIGURATION = """\
listen: "{address}"
jetstream {{
  store_dir: "{data}"
  sync_interval: always
}}
"""


class QueueServer:
    def __init__(self, directory: Path, port: int) -> None:
        self._configuration = directory / "nats.conf"
        self._address = f"{LOOPBACK}:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._configuration.write_text(CONFIGURATION.format(address=self._address, data=directory / "data"))
        self.url = f"nats://{self._address}"

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
async def queue_server(directory: Path) -> AsyncIterator[QueueServer]:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port: int = taken.getsockname()[1]
    server = QueueServer(directory, port)
    await server.start()
    try:
        yield server
    finally:
        server.kill()
