"""Daemons as processes of their own, for tests that stop, kill and watch them."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from gpu_platform.domain.json_text import Json
from tests.support.processes import watched_file
from tests.support.waiting import PATIENCE_SECONDS, NotYet, eventually


class Daemon:
    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def entries(self) -> list[Json]:
        """Its log so far; a line that is just being written is left for the next look."""
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def find_entry(self, message: str) -> Json | None:
        return next((entry for entry in reversed(self.entries()) if entry["message"] == message), None)

    async def says(self, message: str, within: float = PATIENCE_SECONDS) -> Json:
        async def said() -> Json | NotYet:
            has_ended = self._process.returncode is not None
            if entry := self.find_entry(message):
                return entry
            assert not has_ended, f"it ended with {self._process.returncode} before it said {message}"
            return NotYet([entry["message"] for entry in self.entries()[-5:]])

        return await eventually(said, within)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ends(self, within: float = PATIENCE_SECONDS) -> int:
        """The exit code, once the process has ended."""

        async def has_ended() -> tuple[int] | NotYet:
            code = self._process.returncode
            return (code,) if code is not None else NotYet("it runs")

        [code] = await eventually(has_ended, within)
        return code


@asynccontextmanager
async def running_daemon(module: str, log: Path, environment: Mapping[str, str]) -> AsyncIterator[Daemon]:
    """Killed at the end of the block, if it still lives."""
    with log.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, stderr=stderr, env=os.environ | dict(environment)
        )
    try:
        with watched_file(log):
            yield Daemon(process, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
