"""Writes one attempt's output to its log file, and keeps that bounded. The child's reader feeds it."""

import time
from contextlib import suppress
from pathlib import Path

from gpu_platform.devcluster.hostnode.logs.lines import LineSplitter

ROTATE_BYTES = 10 * 1_048_576
"""As kubelet rotates. One older file is kept, so an attempt takes at most twice this."""


def rotated(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


class LogWriter:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("wb", buffering=0)
        self._size = 0
        self._splitters = {stream: LineSplitter(stream) for stream in ("stdout", "stderr")}

    def write(self, stream: str, data: bytes) -> None:
        self._append(b"".join(self._splitters[stream].split(data, time.time_ns())))

    def close(self) -> None:
        for splitter in self._splitters.values():
            self._append(b"".join(splitter.flush(time.time_ns())))
        self._file.close()

    def _append(self, data: bytes) -> None:
        # Output that finds no place on the disk is lost; the process and its pod go on.
        with suppress(OSError):
            if self._size + len(data) > ROTATE_BYTES:
                self._rotate()
            self._file.write(data)
            self._size += len(data)

    def _rotate(self) -> None:
        self._path.replace(rotated(self._path))
        fresh = self._path.open("wb", buffering=0)
        self._file.close()
        self._file, self._size = fresh, 0
