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
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from serverless.framework.calls import (
    CANCEL,
    DEEPEST,
    HEALTH,
    INVOKE,
    Answer,
    BadCallError,
    Call,
    NotJsonError,
    encode_json,
    parse_call,
)
from serverless.framework.functions import Context, Function

log = logging.getLogger(__name__)

SOCKET_MODE = 0o660
LARGEST_BODY = 64 << 20
LOOK_SECONDS = 0.5
"""Between two looks at whether a call that waits for its turn is still wanted."""

CLOSE_LOOK_SECONDS = 0.1
"""Between two looks at whether it is time to close: the library has no other way to be told."""

CANCELLED = 499


@dataclass(eq=False)
class _UnderWay:
    """A call that waits for its turn or runs, with what ends it."""

    context: Context
    is_running: bool = False
    future: Future[Any] | None = None

    @property
    def why_unwanted(self) -> str | None:
        if self.context.cancelled.is_set():
            return "cancelled"
        deadline = self.context.deadline
        return "its deadline has passed" if deadline and deadline <= datetime.now(deadline.tzinfo) else None


class Calls:
    """The calls that are here now."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._slots = threading.Semaphore(function.concurrency)
        self._calls: set[_UnderWay] = set()
        self._lock = threading.Lock()
        self._under_way = 0
        self._is_idle = threading.Condition(self._lock)
        self._loop = asyncio.new_event_loop()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run_loop, name="async handlers", daemon=True)
        self._thread.start()
        self._is_open = False

    @property
    def is_ready(self) -> bool:
        """Not while every slot is held by a call that nobody waits for: a handler that does not look at whether it is
        cancelled cannot be ended."""
        with self._lock:
            lost = sum(each.is_running and each.why_unwanted is not None for each in self._calls)
        return self._is_open and self._thread.is_alive() and lost < self._function.concurrency

    def start(self) -> None:
        """What the function wants done before its first call."""
        self._function.start()
        self._is_open = True

    def drain(self) -> None:
        """Not ready any more; ends when no call is under way."""
        with self._is_idle:
            self._is_open = False
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
        self._is_closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def run(self, call: Call) -> bytes:
        """Its answer, as the sidecar hears it."""
        context = Context(
            call.id, call.attempt, call.deadline, call.content_type, dict(call.headers), dict(call.attributes)
        )
        mine = _UnderWay(context)
        with self._lock:
            self._calls.add(mine)
        try:
            with self._turn(mine):
                if reason := mine.why_unwanted:
                    return _failure(CANCELLED, reason)
                return _encode(self._invoke(call, mine))
        except (CancelledError, asyncio.CancelledError):
            return _failure(CANCELLED, "cancelled")
        except BaseException as error:
            # `sys.exit()` too: it would end the thread of this call and nothing else, and nobody would get an answer.
            log.exception("handler.failed", extra={"invocation": call.id})
            return _failure(500, f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._calls.discard(mine)

    def cancel(self, invocation_id: str) -> bool:
        """Whether it is here."""
        with self._lock:
            found = [each for each in self._calls if each.context.invocation_id == invocation_id]
            for each in found:
                each.context.cancelled.set()
                if each.future is not None:
                    each.future.cancel()
        return bool(found)

    @contextmanager
    def _turn(self, mine: _UnderWay) -> Iterator[None]:
        """With a slot. One that is not wanted any more waits for none."""
        while not (has_slot := self._slots.acquire(timeout=LOOK_SECONDS)):
            if mine.why_unwanted:
                break
        mine.is_running = has_slot
        try:
            yield
        finally:
            mine.is_running = False
            if has_slot:
                self._slots.release()

    def _run_loop(self) -> None:
        """A task that exits, or stops the loop, would leave every other call without an answer."""
        while not self._is_closing:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                log.warning("handler.exits", exc_info=True)

    def _invoke(self, call: Call, mine: _UnderWay) -> Any:
        if not self._function.is_async:
            return self._function.invoke(call.payload, mine.context)
        with self._lock:
            mine.future = asyncio.run_coroutine_threadsafe(
                self._function.invoke(call.payload, mine.context), self._loop
            )
            if mine.context.cancelled.is_set():
                mine.future.cancel()
        return mine.future.result()


def _encode(result: Any) -> bytes:
    answer = result if isinstance(result, Answer) else Answer(body=result)
    try:
        # The answer itself is one level more than its body.
        return encode_json(answer.to_json(), DEEPEST + 1)
    except NotJsonError as error:
        return _failure(500, f"what the function returned is no JSON: {error}")


def _failure(status_code: int, error: str) -> bytes:
    readable = error.encode(errors="backslashreplace").decode()
    return encode_json(Answer(status_code=status_code, error=readable).to_json())


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """Gathers what is written: head and body of an answer are one message, and the sidecar is woken once."""

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
                    self._send(200, self.server.calls.run(parse_call(said)))
            elif self.path == CANCEL:
                self._say(200, {"found": self.server.calls.cancel(str(said["invocationID"]))})
            else:
                self._refuse_path()
        except (BadCallError, KeyError, RecursionError, TypeError, ValueError) as error:
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
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError):
            self.wfile.write(content)
            self.wfile.flush()


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
    thread = threading.Thread(target=server.serve_forever, args=(CLOSE_LOOK_SECONDS,), name="calls", daemon=True)
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
