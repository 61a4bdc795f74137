"""Workers of functions as processes: the framework with the example function, and the sidecar beside it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.repository import ROOT
from tests.support.daemons import Daemon, running_daemon

PREFIX = "GPU_PLATFORM_SIDECAR_"

GATED = "tests/support/gated_function.py:wait"
POISON = "tests/support/poison_function.py:gather"
"""In place of the example function."""


@dataclass(frozen=True)
class WorkerPlace:
    """Where the workers of one function run, and whose calls they take."""

    root: Path
    nats_url: str
    tenant: str
    function: str
    ack_seconds: int = 3
    attempts: int = 3
    nats_credentials: Path | None = None
    handler: str = "examples/functions/words.py:count"
    concurrency: int = 2

    @asynccontextmanager
    async def framework(self, name: str = "worker") -> AsyncIterator[None]:
        """Started again whenever it dies, as Kubernetes would do it."""
        command = (sys.executable, "-m", "serverless.framework", self.handler)
        process: asyncio.subprocess.Process | None = None

        async def supervise() -> None:
            nonlocal process
            while True:
                process = await asyncio.create_subprocess_exec(*command, "--socket", self._socket(name), cwd=ROOT)
                await process.wait()

        supervising = asyncio.create_task(supervise())
        try:
            yield
        finally:
            supervising.cancel()
            await asyncio.wait({supervising})
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()

    @asynccontextmanager
    async def sidecar(self, name: str = "worker") -> AsyncIterator[Daemon]:
        environment = {
            f"{PREFIX}NATS_URL": self.nats_url,
            f"{PREFIX}TENANT": self.tenant,
            f"{PREFIX}FUNCTION": self.function,
            f"{PREFIX}WORKER": name,
            f"{PREFIX}SOCKET": self._socket(name),
            f"{PREFIX}CONCURRENCY": str(self.concurrency),
            f"{PREFIX}MAX_ATTEMPTS": str(self.attempts),
            f"{PREFIX}ACK_WAIT_SECONDS": str(self.ack_seconds),
        }
        if self.nats_credentials:
            environment[f"{PREFIX}NATS_CREDENTIALS"] = str(self.nats_credentials)
        log = self.root / f"{self.function}-{name}.log"
        async with running_daemon("serverless.sidecar", log, environment) as daemon:
            yield daemon

    @asynccontextmanager
    async def worker(self, name: str = "worker") -> AsyncIterator[Daemon]:
        """Both of them."""
        async with self.framework(name), self.sidecar(name) as sidecar:
            yield sidecar

    def _socket(self, name: str) -> str:
        return str(self.root / f"{self.function}-{name}.sock")
