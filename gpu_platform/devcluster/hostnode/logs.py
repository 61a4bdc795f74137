"""Container logs in the format of kubelet's: split into lines, written, rotated, read and followed."""

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from gpu_platform.clock import format_micro_time

PIECE_BYTES = 16_384
"""The longest piece, as in containerd: a process that never ends its line must not fill our memory."""

ROTATE_BYTES = 10 * 1_048_576
"""As kubelet rotates. One older file is kept, so an attempt takes at most twice this."""

CHUNK_BYTES = 65_536
"""One write to the client."""

FOLLOW_SECONDS = 0.1
"""Between two looks at a file that is followed: soon enough to feel immediate."""


@dataclass(frozen=True)
class LogLine:
    timestamp: str
    stream: str
    text: bytes
    """With its line break, unless it is a piece."""


def format_timestamp(nanoseconds: int) -> str:
    """Of fixed width, so that timestamps compare as texts."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def parse_line(raw: bytes) -> LogLine:
    timestamp, stream, tag, text = raw.rstrip(b"\n").split(b" ", 3)
    return LogLine(timestamp.decode(), stream.decode(), text + b"\n" if tag == b"F" else text)


class LineSplitter:
    """Cuts one stream's bytes into the lines of a log file; keeps at most one piece."""

    def __init__(self, stream: str) -> None:
        self._stream = stream.encode()
        self._rest = b""

    def split(self, data: bytes, nanoseconds: int) -> Iterator[bytes]:
        stamp = format_timestamp(nanoseconds).encode()
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            *pieces, last = _pieces(line)
            yield from (self._format(stamp, b"P", piece) for piece in pieces)
            yield self._format(stamp, b"F", last)
        *pieces, self._rest = _pieces(rest)
        yield from (self._format(stamp, b"P", piece) for piece in pieces)

    def flush(self, nanoseconds: int) -> Iterator[bytes]:
        """What the process left without a line break."""
        if self._rest:
            yield self._format(format_timestamp(nanoseconds).encode(), b"P", self._rest)
            self._rest = b""

    def _format(self, stamp: bytes, tag: bytes, text: bytes) -> bytes:
        return b" ".join((stamp, self._stream, tag, text)) + b"\n"


def _pieces(line: bytes) -> list[bytes]:
    """Never empty; only the last piece may be."""
    return [line[start : start + PIECE_BYTES] for start in range(0, len(line), PIECE_BYTES)] or [b""]


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
        since = now - timedelta(seconds=int(seconds)) if seconds else datetime.fromisoformat(at) if at else None
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
