"""Server-sent events: lines in, events out."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ServerEvent:
    event: str
    id: str | None
    data: Any


class EventReader:
    """Reads one stream after the other, and knows where the next one has to go on."""

    def __init__(self) -> None:
        self.last_id: str | None = None

    def read(self, lines: Iterable[str]) -> Iterator[ServerEvent]:
        """Events of a stream's lines, which come without their ends. One that the stream's end cuts off is not one.
        An id counts once its block is complete, also where the block says nothing else."""
        event, data, identifier = "message", list[str](), self.last_id
        for line in lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                self.last_id = identifier
                if data:
                    yield ServerEvent(event, identifier, _parse_data("\n".join(data)))
                event, data = "message", []
            elif name == "event":
                event = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                identifier = value or None


def _parse_data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
