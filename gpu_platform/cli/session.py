"""What all routes of the API have in common: the envelope, pages, replays, ETags, and watches that go on."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpu_platform.cli.errors import ApiError, UnreachableError
from gpu_platform.cli.server_events import EventReader, ServerEvent
from gpu_platform.cli.transport import Transport
from gpu_platform.domain.json_text import Json

RECONNECT_SECONDS = 1.0
RECONNECTS = 10
# The API says every 15 s that it is still there.
WATCH_SILENCE_SECONDS = 60.0

NOT_FOUND = 404
UNKNOWN_ROUTE = "not_found"

View = TypeVar("View")


@dataclass(frozen=True)
class Accepted(Generic[View]):
    """The answer to a request with an operationID."""

    view: View
    is_new: bool
    """False: it was accepted before, and this is a replay."""


@dataclass(frozen=True)
class Tagged(Generic[View]):
    """A view, and what says later whether it is still the same."""

    view: View
    etag: str | None


class Session:
    def __init__(self, url: str, key: str | None) -> None:
        self._transport = Transport(url, key)

    def close(self) -> None:
        self._transport.close()

    def data(self, method: str, path: str, **options: Any) -> Any:
        return self._transport.call(method, path, **options).body["data"]

    def tagged(self, path: str) -> Tagged[Any]:
        answer = self._transport.call("GET", path)
        return Tagged(answer.body["data"], answer.etag)

    def accepted(self, path: str, request: Json, **options: Any) -> Accepted[Any]:
        answer = self._transport.call("POST", path, body=request, **options)
        return Accepted(answer.body["data"], answer.is_new)

    def delete(self, path: str) -> None:
        try:
            self._transport.call("DELETE", path)
        except ApiError as error:
            # The earlier try worked. A route that the API does not know was never deleted.
            if not error.is_repeated or error.status != NOT_FOUND or error.code == UNKNOWN_ROUTE:
                raise

    def pages(self, path: str, params: dict[str, str]) -> Iterator[Any]:
        """The items of a list, page by page."""
        while True:
            page = self._transport.call("GET", path, params=params).body
            yield from page["data"]
            if not (token := page.get("continue")):
                return
            params = {**params, "continue": token}

    def pieces(self, path: str, params: dict[str, str], *, silence_seconds: float | None) -> Iterator[bytes]:
        """Of a text, as they come."""
        with self._transport.stream(path, params, silence_seconds=silence_seconds) as text:
            yield from text.read_pieces()

    def watch(self, path: str, params: dict[str, str]) -> Iterator[ServerEvent]:
        """What happens, without an end: a broken connection goes on after the last event that came."""
        reader = EventReader()
        misses: int | None = None
        while True:
            headers = {"Last-Event-ID": reader.last_id} if reader.last_id else {}
            options: Json = {"headers": headers, "silence_seconds": WATCH_SILENCE_SECONDS}
            try:
                with self._transport.stream(path, params, **options) as stream:
                    misses = 0
                    yield from reader.read(stream.read_lines())
            except (UnreachableError, ApiError) as error:
                # Whoever never answered is not waited for.
                if misses is None or misses >= RECONNECTS or not error.is_passing:
                    raise
                misses += 1
            time.sleep(RECONNECT_SECONDS)
