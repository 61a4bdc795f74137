"""Reads a log file the way `kubectl logs` asks for it. The HTTPS server streams what comes out."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from gpu_platform.devcluster.hostnode.logs.lines import parse_line
from gpu_platform.devcluster.hostnode.logs.writer import rotated
from gpu_platform.devcluster.hostnode.times import format_micro_time, parse_time

CHUNK_BYTES = 65_536
"""One write to the client."""

FOLLOW_SECONDS = 0.1
"""Between two looks at a file that is followed: soon enough to feel immediate."""


@dataclass(frozen=True)
class LogOptions:
    """`PodLogOptions`, as the API server passes them on."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: str | None = None
    """The beginning of a timestamp as in the log file."""
    stream: str | None = None

    @classmethod
    def parse(cls, query: Mapping[str, str], now: datetime) -> Self:
        """Raise `ValueError` for a number or time that is none."""
        seconds, at = query.get("sinceSeconds"), query.get("sinceTime")
        since = now - timedelta(seconds=int(seconds)) if seconds else parse_time(at) if at else None
        stream = query.get("stream", "All")
        return cls(
            follow=query.get("follow") == "true",
            previous=query.get("previous") == "true",
            timestamps=query.get("timestamps") == "true",
            tail_lines=_number(query.get("tailLines")),
            limit_bytes=_number(query.get("limitBytes")),
            since=format_micro_time(since).removesuffix("Z") if since else None,
            stream=None if stream == "All" else stream.lower(),
        )


def read_last(path: Path, lines: int, size: int) -> str:
    """The end of an output, at most so many lines and bytes of it."""
    if not path.exists():
        return ""
    with _LogFile(path) as file:
        text = b"".join(parse_line(raw).text for raw in deque(file.read(), maxlen=lines))
    return text[-size:].decode(errors="replace")


async def stream_log(path: Path, options: LogOptions, is_over: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """The wanted part of the log; with `follow` also what is added, until the process is over."""
    selection = _Selection(options)
    with _LogFile(path) as file:
        lines: Iterable[bytes] = file.read()
        if options.tail_lines is not None:
            lines = deque(lines, maxlen=options.tail_lines)
        for chunk in selection.chunks(lines):
            yield chunk
        while options.follow and not selection.is_complete:
            # Asked before the file is read, so that nothing is missed that was written before the end.
            over = is_over()
            for chunk in selection.chunks(file.read()):
                yield chunk
            if over:
                return
            await asyncio.sleep(FOLLOW_SECONDS)


class _Selection:
    """What the options let through, in chunks of a size that is worth a write."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._remaining = options.limit_bytes
        self._at_line_start = True

    @property
    def is_complete(self) -> bool:
        return self._remaining == 0

    def chunks(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        chunk = bytearray()
        for raw in lines:
            chunk += self._select(raw)
            if len(chunk) >= CHUNK_BYTES or self.is_complete:
                yield bytes(chunk)
                chunk.clear()
            if self.is_complete:
                return
        if chunk:
            yield bytes(chunk)

    def _select(self, raw: bytes) -> bytes:
        line, options = parse_line(raw), self._options
        if options.stream and line.stream != options.stream:
            return b""
        if options.since and line.timestamp < options.since:
            return b""
        stamped = options.timestamps and self._at_line_start
        text = f"{line.timestamp} ".encode() + line.text if stamped else line.text
        self._at_line_start = text.endswith(b"\n")
        if self._remaining is not None:
            text = text[: self._remaining]
            self._remaining -= len(text)
        return text


class _LogFile:
    """Whole lines from the rotated file and then from the current one, also when it is rotated meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        older = rotated(path)
        self._file = (older if older.exists() else path).open("rb")
        self._rest = b""

    def read(self) -> Iterator[bytes]:
        """All that is there and was not read before."""
        while True:
            for line in self._file:
                self._rest += line
                if line.endswith(b"\n"):
                    yield self._rest
                    self._rest = b""
            if not self._path.exists() or os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                return
            self._file.close()
            self._file = self._path.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
