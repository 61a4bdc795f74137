"""One line of a log file: `<RFC3339Nano> <stream> <F|P> <text>`, as container runtimes write it. Pure.

`P` marks a piece of a longer line: the next piece follows without a line break.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

PIECE_BYTES = 16_384
"""The longest piece, as in containerd: a process that never ends its line must not fill our memory."""


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
