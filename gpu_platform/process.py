"""What each process of the platform has beside its work: logs for machines, tasks in the background, children that end
with it, files that are written in one step, and the fault points at which a test lets it die.

A log is one JSON object per line on standard error. Its message names what happened (`unit.plan.applied`); everything
else is a field, given with `extra=`.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest of a record's fields came with `extra=`."""

PR_SET_PDEATHSIG = 1
FAULT = os.environ.get("GPU_PLATFORM_FAULT")


class SentenceError(Exception):
    """One clear sentence: what is wrong and what to do next. The command line prints it and exits with 2."""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # A field never hides one of the four above.
        said = _OWN_FIELDS | entry.keys()
        entry |= {name: value for name, value in vars(record).items() if name not in said}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def configure_json_logs(level: str) -> None:
    """Send every log of this process, and Python's warnings, to standard error in this form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    # A line for every request that it makes; who asks says what is worth knowing.
    logging.getLogger("httpx").setLevel(logging.WARNING)


@asynccontextmanager
async def running(forever: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run these while the block runs; when one of them fails, the block is cancelled and its error raised."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in forever]
        yield
        for task in tasks:
            task.cancel()


def pass_point(name: str) -> None:
    """A fault point: a place where a test ends the process, to show that another one continues its work. Without
    GPU_PLATFORM_FAULT in the environment it does nothing."""
    if name == FAULT:
        os.kill(os.getpid(), signal.SIGKILL)


def dies_with_parent(signal_number: int = signal.SIGKILL) -> Callable[[], None]:
    """A `preexec_fn`: the kernel signals the child when the thread that started it ends, whatever the reason."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def request_death_signal() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent:
            # The parent was gone before the request: nobody will send the signal any more.
            os.kill(os.getpid(), signal_number)

    return request_death_signal


def write_atomically(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Replaces the file in one step: it is either old or new, never half. Private by default."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
