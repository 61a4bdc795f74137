"""A function that is served, and who calls it as the sidecar does: over a real Unix socket."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serverless import Function
from serverless.framework.calls import Call
from serverless.framework.server import served


class Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("framework", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@contextmanager
def serving(function: Function, path: Path) -> Iterator["Client"]:
    with served(function, path):
        yield Client(path)


class Client:
    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, method: str, place: str, body: Any = None) -> tuple[int, Any]:
        connection = Connection(self._path)
        try:
            connection.request(method, place, body if isinstance(body, bytes) else json.dumps(body).encode())
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def invoke(self, payload: Any, invocation_id: str = "call-1") -> Any:
        status, answer = self.ask("POST", "/invoke", Call(invocation_id, "f", payload=payload).to_json())
        assert status == 200
        return answer
