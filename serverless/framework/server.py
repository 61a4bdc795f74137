"""Serves one function on a Unix socket: `GET /healthz`, `POST /invoke`, `POST /cancel`. One thread per call."""

import asyncio
import json
import logging
import os
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from serverless.framework.calls import CANCEL, HEALTH, INVOKE, Answer, BadCallError, Call, parse_call
from serverless.framework.functions import Context, Function

log = logging.getLogger(__name__)

SOCKET_MODE = 0o660
LARGEST_BODY = 64 << 20


class Calls:
    """The calls that run now, each with what ends it."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._slots = threading.Semaphore(function.concurrency)
        self._running: dict[str, tuple[Context, Future[Any] | None]] = {}
        self._lock = threading.Lock()
        self._under_way = 0
        self._is_idle = threading.Condition(self._lock)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="async handlers", daemon=True)
        self._thread.start()
        self.is_ready = False

    def start(self) -> None:
        """What the function wants done before its first call."""
        self._function.start()
        self.is_ready = True

    def drain(self) -> None:
        """Not ready any more; ends when no call is under way."""
        with self._is_idle:
            self.is_ready = False
            self._is_idle.wait_for(lambda: self._under_way == 0)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A call, from its first byte to the last one of its answer."""
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._is_idle:
                self._under_way -= 1
                self._is_idle.notify_all()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def run(self, call: Call) -> Answer:
        context = Context(
            call.id, call.attempt, call.deadline, call.content_type, dict(call.headers), dict(call.attributes)
        )
        with self._slots:
            try:
                return _as_answer(self._invoke(call, context))
            except (CancelledError, asyncio.CancelledError):
                return Answer(status_code=499, error="cancelled")
            except Exception as error:
                log.exception("handler.failed", extra={"invocation": call.id})
                return Answer(status_code=500, error=f"{type(error).__name__}: {error}")
            finally:
                with self._lock:
                    self._running.pop(call.id, None)

    def cancel(self, invocation_id: str) -> bool:
        """Whether it runs here."""
        with self._lock:
            context, future = self._running.get(invocation_id, (None, None))
        if context is None:
            return False
        context.cancelled.set()
        if future is not None:
            future.cancel()
        return True

    def _invoke(self, call: Call, context: Context) -> Any:
        if not self._function.is_async:
            with self._lock:
                self._running[call.id] = context, None
            return self._function.invoke(call.payload, context)
        future = asyncio.run_coroutine_threadsafe(self._function.invoke(call.payload, context), self._loop)
        with self._lock:
            self._running[call.id] = context, future
        return future.result()


def _as_answer(result: Any) -> Answer:
    return result if isinstance(result, Answer) else Answer(body=result)


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        if self.path != HEALTH:
            self._refuse_path()
        elif self.server.calls.is_ready:
            self._say(200, {"ok": True})
        else:
            self._say(503, {"ok": False})

    def do_POST(self) -> None:
        try:
            said = json.loads(self.rfile.read(self._length()))
            if self.path == INVOKE:
                with self.server.calls.counted():
                    self._say(200, self.server.calls.run(parse_call(said)).to_json())
            elif self.path == CANCEL:
                self._say(200, {"found": self.server.calls.cancel(str(said["invocationID"]))})
            else:
                self._refuse_path()
        except (BadCallError, KeyError, TypeError, ValueError) as error:
            self._say(400, {"error": str(error)})

    def _refuse_path(self) -> None:
        if self.path in (INVOKE, CANCEL, HEALTH):
            self._say(405, {"error": f"{self.command} is not for {self.path}"})
        else:
            self._say(404, {"error": f"there is no {self.path}"})

    def address_string(self) -> str:
        return "the sidecar"

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the parent's name
        log.debug(format, *arguments)

    def _length(self) -> int:
        length = int(self.headers.get("Content-Length", ""))
        if not 0 <= length <= LARGEST_BODY:
            raise ValueError(f"a body of {length} bytes is too large")
        return length

    def _say(self, status: int, body: Any) -> None:
        try:
            content = json.dumps(body, default=str).encode()
        except ValueError as error:
            status, content = 200, json.dumps(Answer(status_code=500, error=f"no JSON: {error}").to_json()).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError):
            self.wfile.write(content)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, calls: Calls) -> None:
        self.calls = calls
        super().__init__(str(path), _Requests)

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request, client_address
        log.debug("connection.broken", exc_info=True)


@contextmanager
def served(function: Function, path: Path) -> Iterator[Calls]:
    """Answers until the end of the block; ready once the function's own start is done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        # Of an earlier process: nobody else may have this place.
        path.unlink()
    calls = Calls(function)
    server = _Server(path, calls)
    os.chmod(path, SOCKET_MODE)  # noqa: PTH101 - a socket
    thread = threading.Thread(target=server.serve_forever, name="calls", daemon=True)
    thread.start()
    try:
        calls.start()
        yield calls
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()
        calls.close()
        with suppress(FileNotFoundError):
            path.unlink()
