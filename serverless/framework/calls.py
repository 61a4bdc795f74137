"""What the sidecar says to the framework, and hears from it: JSON over a Unix socket."""

import json
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

Json = dict[str, Any]

INVOKE, CANCEL, HEALTH = "/invoke", "/cancel", "/healthz"

DEFAULT_SOCKET = Path("/tmp/serverless-framework/framework.sock")  # noqa: S108 - a place that both containers share
SOCKET_VARIABLE = "SERVERLESS_SOCKET"
"""Where the platform says that it is, when it is somewhere else."""


DEEPEST = 100
"""Levels of a body, one within the other. Most readers of JSON give up soon after."""

LEAVES = (str, int, float, type(None))


class BadCallError(Exception):
    """What came is no call."""


class NotJsonError(Exception):
    """It cannot be written as JSON that everybody can read."""


def encode_json(value: Any, deepest: int = DEEPEST) -> bytes:
    """What is neither JSON nor a dataclass is written as its text."""
    too_deep = f"it is nested deeper than {deepest} levels"
    try:
        text = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        content = text.encode()
    except RecursionError:
        raise NotJsonError(too_deep) from None
    except (TypeError, ValueError) as error:
        raise NotJsonError(str(error)) from error
    if _is_deeper(value, deepest):
        raise NotJsonError(too_deep)
    return content


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return str(value)


def _is_deeper(value: Any, deepest: int) -> bool:
    """Of what ends somewhere: it was written already."""
    level = [value]
    for _ in range(deepest):
        level = [part for each in level for part in _parts(each) if not isinstance(part, LEAVES)]
        if not level:
            return False
    return any(isinstance(each, dict | list | tuple) or is_dataclass(each) for each in level)


def _parts(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = _plain(value)
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


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
        return {
            "statusCode": self.status_code,
            "contentType": self.content_type,
            "body": self.body,
            "headers": self.headers,
            "error": self.error,
        }
