"""The embedded cluster's nats-server after a full disk: its supervisor restarts it, and nothing stored is lost."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import nats.errors
import pytest

from gpu_platform.devcluster.configuration import write_configuration
from gpu_platform.devcluster.credentials import credentials_file
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.processes import plan_processes
from gpu_platform.devcluster.record import ClusterRecord, ProcessStatus, close_all, read_status, reserve_ports
from gpu_platform.devcluster.supervisor import Supervisor
from gpu_platform.nats.connection import JetStream, QueueAccess, open_queue
from gpu_platform.nats.durability import probe_storage
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.permissions import QueueUser
from gpu_platform.nats.streams import ensure_streams
from gpu_platform.nats.subjects import RECORDS, record_subject
from tests.support.nats_server import WITHOUT_SIGXFSZ, forbid_writes
from tests.support.waiting import NotYet, eventually


@asynccontextmanager
async def supervised_nats(directory: ClusterDirectory) -> AsyncIterator[QueueAccess]:
    """The nats-server of an embedded cluster, with its own configuration and supervisor, and no other process."""
    directory.create()
    reserved = reserve_ports({})
    ports = {name: each.getsockname()[1] for name, each in reserved.items()}
    close_all(reserved)
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert binary is not None
    others = dict.fromkeys(("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"), "unused")
    record = replace(ClusterRecord.new(), ports=ports, binaries={**others, "nats-server": binary})
    write_configuration(directory, record, datetime.now(UTC))
    [spec] = [spec for spec in plan_processes(directory, record, "") if spec.name == "nats-server"]
    spec = replace(spec, argv=(*WITHOUT_SIGXFSZ, *spec.argv))
    running = asyncio.create_task(Supervisor(directory, record, [spec]).run())
    try:
        yield QueueAccess(record.nats_url, credentials_file(directory, QueueUser.PLATFORM))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0


def status_of_nats(directory: ClusterDirectory) -> ProcessStatus | None:
    processes = {process.name: process for process in read_status(directory).processes}
    return processes.get("nats-server")


async def wait_ready(directory: ClusterDirectory, restarts: int) -> int:
    """Its pid."""

    async def is_ready() -> int | NotYet:
        status = status_of_nats(directory)
        if status is None or status.pid is None or (status.state, status.restarts) != ("ready", restarts):
            return NotYet(status)
        return status.pid

    return await eventually(is_ready)


async def test_a_server_that_met_a_full_disk_is_restarted_and_stores_again(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    async with supervised_nats(directory) as access:
        pid = await wait_ready(directory, restarts=0)
        async with open_queue(access, "test") as js:
            await ensure_streams(js)
            await js.publish(record_subject("acme", "kept", "words"), b"{}")
            # The restarted process has no such limit: the disk has room again.
            forbid_writes(pid)
            with pytest.raises(nats.errors.TimeoutError):
                await js.publish(record_subject("acme", "lost", "words"), b"{}", timeout=1)
            assert await wait_ready(directory, restarts=1) != pid
            await eventually(lambda: stores(js))
            kept = await js.get_msg(RECORDS, subject=record_subject("acme", "kept", "words"))
            assert kept.data == b"{}"


async def stores(js: JetStream) -> bool | NotYet:
    try:
        probe = await probe_storage(js)
    except QueueUnavailableError as error:
        return NotYet(error)
    return not probe.failed or NotYet(probe)
