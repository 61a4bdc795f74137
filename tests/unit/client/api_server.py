"""A real HTTP server on a port of its own that gives the answers it was told to give, and remembers the questions."""

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from gpu_platform.domain.json_text import Json

PREFIX = "/api/v1"


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: Any = None
    """JSON, or text that is sent as it is."""

    headers: Mapping[str, str] = field(default_factory=dict)
    stays_open: bool = False
    """Whether the answer has no end, until the server stops or the caller goes."""

    is_cut: bool = False
    """Whether the connection breaks before there is any answer."""


@dataclass(frozen=True)
class Question:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


class ApiServer:
    def __init__(self, address: str, stopping: threading.Event) -> None:
        self.url = address
        self.stopping = stopping
        self.questions: list[Question] = []
        self._answers: dict[tuple[str, str], deque[Answer]] = {}

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """These answers, one after the other; the last one stays."""
        self._answers[method, path] = deque(answers)

    def asked(self, method: str, path: str) -> list[Question]:
        return [question for question in self.questions if (question.method, question.path) == (method, path)]

    def answer(self, question: Question) -> Answer:
        self.questions.append(question)
        answers = self._answers.get((question.method, question.path))
        if answers is None:
            return refusal(404, "not_found", f"no route {question.path}")
        return answers.popleft() if len(answers) > 1 else answers[0]


def data(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, {"data": value}, headers)


def page(values: list[Json], token: str | None) -> Answer:
    return Answer(200, {"data": values, **({"continue": token} if token else {})})


def refusal(status: int, code: str, message: str, *details: Json, retry_after: int | None = None) -> Answer:
    error = {"code": code, "message": message, "requestID": "req-1", **({"details": details} if details else {})}
    return Answer(status, {"error": error}, {} if retry_after is None else {"Retry-After": str(retry_after)})


def stream(*lines: str) -> Answer:
    return Answer(body="\n".join([*lines, ""]), headers={"Content-Type": "text/event-stream"})


def event(kind: str, number: str, view: Json) -> tuple[str, ...]:
    return f"id: {number}", f"event: {kind}", f"data: {json.dumps(view)}", ""


NO_CONTENT = Answer(204)


@contextmanager
def running_server() -> Iterator[ApiServer]:
    stopping = threading.Event()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    # So that closing waits for the handlers, and no test leaves a socket behind.
    listener.daemon_threads = False
    api = ApiServer(f"http://127.0.0.1:{listener.server_port}", stopping)
    listener.api = api  # type: ignore[attr-defined]
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        stopping.set()
        listener.shutdown()
        thread.join()
        listener.server_close()


class _Handler(BaseHTTPRequestHandler):
    def _reply(self) -> None:
        api: ApiServer = self.server.api  # type: ignore[attr-defined]
        url = urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(url.path).removeprefix(PREFIX)
        body = json.loads(content) if content else None
        answer = api.answer(Question(self.command, path, dict(parse_qsl(url.query)), dict(self.headers), body))
        if answer.is_cut:
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.body is not None:
            text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
            self.wfile.write(text.encode())
            self.wfile.flush()
        if answer.stays_open:
            api.stopping.wait(30)

    do_GET = do_POST = do_PUT = do_DELETE = _reply  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Silent."""
