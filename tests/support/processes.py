"""Processes: whether one runs, as the kernel says, and their logs, so that a failing test can show the last lines."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHOWN_LINES = 25
"""Of each process: enough for the error before the end, few enough to read ten of them."""

SHOWN_CHARACTERS = 800
READ_BYTES = 32_768

_files: dict[Path, bool] = {}
"""Whether the process that writes it still runs."""

_directories: list[Path] = []
_offsets: dict[Path, int] = {}


@contextmanager
def watched_file(log: Path) -> Iterator[None]:
    """The log of a process that ends with the block; a report of the test that is running then still shows it."""
    _files[log] = True
    try:
        yield
    finally:
        _files[log] = False


@contextmanager
def watched_directory(logs: Path) -> Iterator[None]:
    """The logs of processes that outlive a test: a report shows only what was written during the test."""
    _directories.append(logs)
    try:
        yield
    finally:
        _directories.remove(logs)


def begin_test() -> None:
    """Called before each test: what the logs hold by now belongs to earlier tests."""
    for ended in [log for log, runs in _files.items() if not runs]:
        del _files[ended]
    _offsets.clear()
    _offsets.update({log: log.stat().st_size for log in _list_logs()})


def list_last_lines() -> list[tuple[str, str]]:
    """(process, last lines that it wrote during this test), for each process that wrote any."""
    shown = [(log.stem, _read_tail(log)) for log in _list_logs()]
    return [(name, text) for name, text in shown if text]


def _list_logs() -> list[Path]:
    found = [log for directory in _directories for log in sorted(directory.glob("*.log")) if log.stem != "audit"]
    return [log for log in (*_files, *found) if log.exists()]


def _read_tail(log: Path) -> str:
    size = log.stat().st_size
    with log.open("rb") as file:
        file.seek(max(_offsets.get(log, 0), size - READ_BYTES))
        text = file.read().decode(errors="replace")
    return "\n".join(line[:SHOWN_CHARACTERS] for line in text.splitlines()[-SHOWN_LINES:])


def is_running(pid: int) -> bool:
    """A zombie has ended, and only waits to be collected. One that is collected between the opening of the file and
    the reading of it is gone as well."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
