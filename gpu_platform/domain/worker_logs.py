"""The last lines that a worker of a function has written, kept so that they outlive it.

Each worker has one entry: at most LINES lines and BYTES bytes, the newest, each as `<time> <text>`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

LINES = 500
BYTES = 64 << 10
"""Of one worker. A traceback has some fifty lines."""

LINE_BYTES = 4 << 10
"""Of one line; the rest of a longer one is left out."""

WORKERS = 32
"""Of one function, besides those that live: the entries of other workers are deleted, the oldest first."""

ENTRIES = 4_096
"""Of all functions: 256 MiB."""

KEPT = timedelta(hours=24)
"""After the last line."""

STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"
STAMP_LENGTH = len("2026-11-18T12:00:00.000000Z")
STAMP_ROOM = len("2026-11-18T12:00:00.000000000+00:00 x")
"""Before the text of a line of the kubelet, and a byte by which a line is seen to be too long."""


def parse_line(raw: bytes) -> str:
    """A line of the kubelet, `<time> <text>`, with its time in one form, so that lines compare by it."""
    stamp, _, text = raw.decode(errors="replace").partition(" ")
    try:
        moment = datetime.fromisoformat(stamp).astimezone(UTC).strftime(STAMP)
    except ValueError:
        # Not a line of the log, but a word of the kubelet about it.
        moment, text = "", f"{stamp} {text}"
    content = text.encode()
    if len(content) > LINE_BYTES:
        text = content[:LINE_BYTES].decode(errors="ignore") + " (cut)"
    return f"{moment:{STAMP_LENGTH}} {text}"


def moment_of(line: str) -> str:
    return line[:STAMP_LENGTH]


def text_of(line: str) -> str:
    return line[STAMP_LENGTH + 1 :]


def keep_last(lines: Sequence[str]) -> tuple[str, ...]:
    """As many of the last lines as there is room for."""
    kept: list[str] = []
    room = BYTES
    for line in reversed(lines):
        room -= len(line.encode()) + 1
        if room < 0 or len(kept) == LINES:
            break
        kept.append(line)
    return tuple(reversed(kept))


def find_surplus(kept: Sequence[str], living: Collection[str]) -> Sequence[str]:
    """The workers whose entries are deleted, of those that have one, in the order of their last line."""
    gone = [worker for worker in kept if worker not in living]
    return gone[: max(0, len(gone) - WORKERS)]


class LineSplitter:
    """Whole lines of a log that comes in pieces. Of a line without an end, no more is held than is kept of it."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, piece: bytes) -> list[bytes]:
        *whole, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[: LINE_BYTES + STAMP_ROOM]
        return whole

    def finish(self) -> list[bytes]:
        return [self._rest] if self._rest else []


class Position:
    """How far a log was read: the moment of its last line, and the lines of that very moment."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._moment = ""
        self._lines: Counter[str] = Counter()
        for line in lines:
            self.advance(line)

    def advance(self, line: str) -> None:
        moment = moment_of(line)
        if moment > self._moment:
            self._moment, self._lines = moment, Counter()
        if moment == self._moment:
            self._lines[line] += 1

    def find_new(self) -> Callable[[str], bool]:
        """Says of each line of the log, when it is read once more from an earlier place, whether it is new."""
        last, known = self._moment, self._lines.copy()

        def is_new(line: str) -> bool:
            moment = moment_of(line)
            if moment == last and known[line]:
                known[line] -= 1
                return False
            return moment >= last

        return is_new


def appended(before: Sequence[str], after: Sequence[str]) -> Sequence[str]:
    """What was added to an entry between two looks at it. Lines go at its beginning and come at its end."""
    for gone in range(len(before) + 1):
        if list(before[gone:]) == list(after[: len(before) - gone]):
            return after[len(before) - gone :]
    return after


def merge_logs(logs: Iterable[tuple[str, Sequence[str]]]) -> tuple[tuple[str, str], ...]:
    """Worker and line, in the order in which the lines were written."""
    lines = ((worker, line) for worker, kept in logs for line in kept)
    return tuple(sorted(lines, key=lambda each: moment_of(each[1])))
