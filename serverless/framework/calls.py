"""What the sidecar says to the framework, and hears from it: JSON over a Unix socket."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

Json = dict[str, Any]

INVOKE, CANCEL, HEALTH = "/invoke", "/cancel", "/healthz"

DEFAULT_SOCKET = Path("/tmp/serverless-framework/framework.sock")  # noqa: S108 - a place that both containers share
SOCKET_VARIABLE = "SERVERLESS_SOCKET"
"""Where the platform says that it is, when it is somewhere else."""


class BadCallError(Exception):
    """What came is no call."""


@dataclass(frozen=True)
class Call:
    id: str
    function: str
    attempt: int = 1
    deadline: datetime | None = None
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    payload: Any = None

    def to_json(self) -> Json:
        return {
            "version": "v1",
            "invocationID": self.id,
            "function": self.function,
            "attempt": self.attempt,
            "deadline": self.deadline.isoformat() if self.deadline else None,
            "contentType": self.content_type,
            "headers": self.headers,
            "attributes": self.attributes,
            "payload": self.payload,
        }


def parse_call(said: Any) -> Call:
    try:
        deadline = said.get("deadline")
        return Call(
            id=str(said["invocationID"]),
            function=str(said["function"]),
            attempt=int(said.get("attempt", 1)),
            deadline=datetime.fromisoformat(deadline) if deadline else None,
            content_type=str(said.get("contentType", "application/json")),
            headers=dict(said.get("headers") or {}),
            attributes=dict(said.get("attributes") or {}),
            payload=said.get("payload"),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadCallError(f"this is no call: {error!r}") from error


@dataclass(frozen=True)
class Answer:
    """Of the function. A handler returns any value, or one of these to say more than the body."""

    body: Any = None
    status_code: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    error: str | None = None

    def to_json(self) -> Json:
        said = asdict(self)
        return {"statusCode": said.pop("status_code"), "contentType": said.pop("content_type"), **said}
