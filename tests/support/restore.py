"""`gpu-platform restore` as a person runs it, and the locks that Pulumi's processes leave behind."""

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpu_platform.domain.stacks import StackAddress
from stacks.runner.backend import StackFiles, shard_of
from tests.support.clusters import RunningCluster
from tests.support.stack_workers import PASSPHRASE, StackPlace


@dataclass(frozen=True)
class Told:
    """What a restore said at its end."""

    code: int
    output: str
    errors: str

    def results(self) -> dict[str, str]:
        """By stack."""
        return {each["stack"]: each["result"] for each in json.loads(self.output)["stacks"]}

    def reason_of(self, stack: str) -> str:
        [reason] = [each["reason"] for each in json.loads(self.output)["stacks"] if each["stack"] == stack]
        return str(reason)

    def plan(self) -> dict[str, str]:
        return {each["stack"]: each["action"] for each in json.loads(self.output)["plan"]}


@asynccontextmanager
async def restoring(
    cluster: RunningCluster,
    place: StackPlace,
    *options: str,
    fault: str | None = None,
    passphrase: str = PASSPHRASE,
    parallel: int = 2,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Killed at the end of the block, if it still runs."""
    prefix = "GPU_PLATFORM_STACK_WORKER_"
    environment = {
        **os.environ,
        **cluster.environment(os.environ["PATH"]),
        "PULUMI_CONFIG_PASSPHRASE": passphrase,
        f"{prefix}BACKEND_URL": place.url,
        f"{prefix}STATE_DIRECTORY": str(place.root / "restore"),
        f"{prefix}LEASE_SECONDS": "6",
        f"{prefix}PARALLEL": str(parallel),
        **({"GPU_PLATFORM_FAULT": fault} if fault else {}),
    }
    environment.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpu_platform.cli", "restore", *options),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def restore(
    cluster: RunningCluster, place: StackPlace, *options: str, fault: str | None = None, passphrase: str = PASSPHRASE
) -> Told:
    async with restoring(cluster, place, *options, fault=fault, passphrase=passphrase) as process:
        output, errors = await process.communicate()
        return Told(process.returncode or 0, output.decode(), errors.decode())


def plant_lock(place: StackPlace, address: StackAddress, *, pid: int, host: str | None = None) -> Path:
    """As Pulumi's CLI writes one."""
    directory = StackFiles(place.backend / shard_of(address.stack), address).locks
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{secrets.token_hex(16)}.json"
    content = {
        "pid": pid,
        "username": "somebody",
        "hostname": host or socket.gethostname(),
        "timestamp": datetime.now(UTC).isoformat(),
    }
    file.write_text(json.dumps(content))
    return file


@contextmanager
def working_on(stack: str) -> Iterator[int]:
    """The pid of a process that might be a Pulumi at work on this stack."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", stack])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def dead_pid() -> int:
    """Of a process that was there, and is no more."""
    with working_on("") as pid:
        return pid
