"""`python -m serverless.sidecar`: takes a function's calls from the queue until it is told to end.

All its settings come from the environment: a pod has no file of them.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gpu_platform.clock import now_utc, process_started_at
from gpu_platform.nats.connection import JetStream, QueueAccess, open_queue
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.permissions import sidecar_inbox_prefix
from gpu_platform.nats.records import Records
from gpu_platform.process import configure_json_logs
from gpu_platform.settings import Settings, SettingsError, load_settings
from serverless.framework.calls import DEFAULT_SOCKET, HEALTH, INVOKE
from serverless.sidecar.drain import Shifts, served
from serverless.sidecar.framework_client import FrameworkClient
from serverless.sidecar.worker import Worker, WorkerSettings

ENVIRONMENT_PREFIX = "GPU_PLATFORM_SIDECAR_"
Text = Annotated[str, Field(min_length=1)]
log = logging.getLogger(__name__)
MISUSED = 2
RETRY_SECONDS = 1.0


class SidecarSettings(Settings):
    nats_url: Annotated[str, Field(alias="natsURL", min_length=1)] = "nats://127.0.0.1:4222"
    nats_credentials: Path | None = None
    nats_ca: Annotated[Path | None, Field(alias="natsCA")] = None
    tenant: Text = "default"
    function: Text
    worker: Text
    socket: Path = DEFAULT_SOCKET
    invoke_path: Text = INVOKE
    health_path: Text = HEALTH
    health_host: Text = "127.0.0.1"
    health_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    concurrency: Annotated[int, Field(ge=1, le=256)] = 1
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    ack_wait_seconds: Annotated[int, Field(ge=1)] = 30
    result_retention_seconds: Annotated[int, Field(ge=1)] = 24 * 3600
    woken_at: AwareDatetime | None = None
    claimed_at: AwareDatetime | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def ack_wait(self) -> timedelta:
        return timedelta(seconds=self.ack_wait_seconds)

    @property
    def result_retention(self) -> timedelta:
        return timedelta(seconds=self.result_retention_seconds)


def load_sidecar_settings(environment: Mapping[str, str]) -> SidecarSettings:
    return load_settings(SidecarSettings, None, environment, ENVIRONMENT_PREFIX)


async def run(settings: SidecarSettings) -> None:
    """SIGTERM: no more calls, and time for those under way."""
    worker_settings = WorkerSettings(
        settings.tenant,
        settings.function,
        settings.worker,
        settings.concurrency,
        settings.max_attempts,
        settings.ack_wait,
        started_at=process_started_at(),
        woken_at=settings.woken_at,
        claimed_at=settings.claimed_at,
    )
    async with FrameworkClient(settings.socket, settings.invoke_path, settings.health_path) as framework:

        def build_worker(js: JetStream) -> Worker:
            return Worker(js, Records(js, settings.result_retention), framework, worker_settings, now_utc)

        shifts = Shifts(framework, build_worker)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, shifts.stop)
        answers = {"/healthz": _is_alive, "/readyz": shifts.is_ready, "/drain": shifts.drain}
        async with served(answers, settings.health_host, settings.health_port) as port:
            fields = {"function": settings.function, "worker": settings.worker, "health_port": port}
            log.info("sidecar.started", extra=fields)
            await _run_connected(settings, shifts)
        log.info("sidecar.stopped")


async def _run_connected(settings: SidecarSettings, shifts: Shifts) -> None:
    """Waits for NATS, and for credentials that it takes: without them nothing can be lost here."""
    access = QueueAccess(settings.nats_url, settings.nats_credentials, settings.nats_ca)
    inbox = sidecar_inbox_prefix(settings.tenant, settings.function)
    is_connected = False

    async def connect_and_run() -> None:
        nonlocal is_connected
        while not shifts.are_over:
            try:
                async with open_queue(access, settings.worker, inbox_prefix=inbox) as js:
                    is_connected = True
                    log.info("sidecar.connected", extra={"server": access.place})
                    await shifts.run(js)
                    is_connected = False
            except QueueUnavailableError as error:
                log.warning("queue.away", extra={"error": str(error)})
            if not shifts.are_over:
                await asyncio.sleep(RETRY_SECONDS)

    running = asyncio.create_task(connect_and_run())
    stopping = asyncio.create_task(shifts.wait_until_over())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not is_connected:
        running.cancel()
    await asyncio.wait({running})
    if not running.cancelled():
        running.result()


async def _is_alive() -> bool:
    return True


def main() -> int:
    try:
        settings = load_sidecar_settings(os.environ)
        configure_json_logs(settings.log_level)
        asyncio.run(run(settings))
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
