"""Streams of the API: server-sent events, and a watch that goes on after the last event when its connection breaks.
Pure: lines in, events out."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gpu_platform.client.calls import SILENCE_SECONDS, Exchange, read_model
from gpu_platform.client.errors import ApiError, PlatformError, UnreachableError

RECONNECT_SECONDS = 1.0
RECONNECTS = 10
WATCH_SILENCE_SECONDS = 60.0
"""The API sends a comment every 15 s."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class ServerEvent(Generic[T_co]):
    """One event: added, modified, deleted, or resync, which has no object."""

    event: str
    id: str | None
    data: Any
    """The JSON as the server sent it."""

    read: Callable[[Any], T_co] = field(default=lambda data: data, repr=False, compare=False)

    @property
    def object(self) -> T_co | None:
        """The object after the event; None where the event has none."""
        return read_model(self.read, self.data) if isinstance(self.data, dict) and self.data else None


class EventReader(Generic[T_co]):
    """Reads one stream after the other, and keeps the id after which the next one continues."""

    def __init__(self, read: Callable[[Any], T_co]) -> None:
        self.last_id: str | None = None
        self._read = read
        self.begin()

    def begin(self) -> None:
        """Starts a new stream. An event that the end of the last one cut off is dropped."""
        self._event, self._data, self._id = "message", list[str](), self.last_id

    def feed(self, line: str) -> Iterator[ServerEvent[T_co]]:
        """Takes one line without its end; yields the event that it completes. An id counts once its block is complete,
        also where the block has no data."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            self.last_id = self._id
            if self._data:
                yield ServerEvent(self._event, self._id, _parse_data("\n".join(self._data)), self._read)
            self.begin()
        elif name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value or None


class Stream(ABC, Generic[T_co]):
    """An answer that arrives in parts, over one connection or several."""

    @abstractmethod
    def build_exchange(self) -> Exchange:
        """The request of the next connection."""

    def begin(self) -> None:
        """Called when a connection is accepted."""

    @abstractmethod
    def feed(self, piece: bytes) -> Iterator[T_co]:
        """Takes bytes as they arrive; yields what they complete."""

    @abstractmethod
    def find_pause(self, error: PlatformError | None) -> float | None:
        """Seconds until the next connection after this one ended; None if it was the last. Raises the error where
        connecting again is no use."""


class LogStream(Stream[bytes]):
    """A text, such as a log: one connection."""

    def __init__(self, path: str, params: Mapping[str, str], *, follows: bool) -> None:
        # A program that writes nothing is not a broken connection.
        self._exchange = Exchange("GET", path, params, silence_seconds=None if follows else SILENCE_SECONDS)

    def build_exchange(self) -> Exchange:
        return self._exchange

    def feed(self, piece: bytes) -> Iterator[bytes]:
        yield piece

    def find_pause(self, error: PlatformError | None) -> None:
        if error is not None:
            raise error


class WatchStream(Stream[ServerEvent[T]], Generic[T]):
    """Changes of objects, without an end: a broken connection continues after the last event that arrived."""

    def __init__(self, path: str, params: Mapping[str, str], read: Callable[[Any], T]) -> None:
        self._path, self._params = path, params
        self._reader = EventReader(read)
        self._rest = b""
        self._misses: int | None = None

    def build_exchange(self) -> Exchange:
        headers = {"Last-Event-ID": self._reader.last_id} if self._reader.last_id else {}
        return Exchange("GET", self._path, self._params, headers=headers, silence_seconds=WATCH_SILENCE_SECONDS)

    def begin(self) -> None:
        self._misses, self._rest = 0, b""
        self._reader.begin()

    def feed(self, piece: bytes) -> Iterator[ServerEvent[T]]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            yield from self._reader.feed(line.rstrip(b"\r").decode(errors="replace"))

    def find_pause(self, error: PlatformError | None) -> float:
        """Where no connection was ever accepted, none is waited for."""
        if error is not None:
            is_passing = isinstance(error, UnreachableError | ApiError) and error.is_passing
            if self._misses is None or self._misses >= RECONNECTS or not is_passing:
                raise error
            self._misses += 1
        return RECONNECT_SECONDS


def _parse_data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
