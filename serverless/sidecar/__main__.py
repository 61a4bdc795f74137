"""`python -m serverless.sidecar`: takes a function's calls from the queue until it is told to end."""

import asyncio
import logging
import os
import signal
import sys

from gpu_platform.adapters.clock import now_utc
from gpu_platform.adapters.json_logs import configure_json_logs
from gpu_platform.adapters.queue.connection import open_queue
from gpu_platform.adapters.queue.errors import QueueUnavailableError
from gpu_platform.adapters.queue.records import Records
from gpu_platform.settings import SettingsError
from serverless.sidecar.framework_client import FrameworkClient
from serverless.sidecar.settings import SidecarSettings, load_sidecar_settings
from serverless.sidecar.worker import Worker, WorkerSettings

log = logging.getLogger(__name__)

MISUSED = 2


async def run(settings: SidecarSettings) -> None:
    """SIGTERM: no more calls, and time for those under way."""
    worker_settings = WorkerSettings(
        settings.tenant,
        settings.function,
        settings.worker,
        settings.concurrency,
        settings.max_attempts,
        settings.ack_wait,
    )
    async with open_queue(settings.nats_url, settings.worker) as js, FrameworkClient(settings.socket) as framework:
        worker = Worker(js, Records(js, settings.result_retention), framework, worker_settings, now_utc)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        log.info("sidecar.started", extra={"function": settings.function, "worker": settings.worker})
        await worker.run()
        log.info("sidecar.stopped")


def main() -> int:
    try:
        settings = load_sidecar_settings(os.environ)
        configure_json_logs(settings.log_level)
        asyncio.run(run(settings))
    except (SettingsError, QueueUnavailableError) as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
