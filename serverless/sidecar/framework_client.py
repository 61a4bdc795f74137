"""The framework, asked over its Unix socket."""

import asyncio
import json
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from pydantic import ValidationError

from gpu_platform.domain.invocation_plan import Loss
from gpu_platform.domain.invocations import LARGEST_BODY, InvocationResult
from serverless.framework.calls import CANCEL, HEALTH, INVOKE, Call

SHORT_SECONDS = 5.0

FRESH_SECONDS = 0.5
"""How long an answer proves that the framework is well: who calls it without a pause need not ask it each time."""

MARGIN = 1 << 20
"""Bytes of an answer besides its body."""


class NoAnswerError(Exception):
    """The call has no result, and may be tried again; `loss` says what the framework has seen of it."""

    def __init__(self, message: str, loss: Loss) -> None:
        super().__init__(message)
        self.loss = loss


class _TooMuchError(Exception):
    """More than there is room for."""


class FrameworkClient:
    def __init__(
        self, socket: Path, invoke_path: str = INVOKE, health_path: str = HEALTH, largest_body: int = LARGEST_BODY
    ) -> None:
        """Within a running loop."""
        self._socket = socket
        self._largest_answer = largest_body + MARGIN
        self._invoke_path = invoke_path
        self._health_path = health_path
        self._answered_at = -FRESH_SECONDS
        self._session = aiohttp.ClientSession(
            base_url="http://framework",
            # A connection each: one that is kept may be of a process that has died meanwhile.
            connector=aiohttp.UnixConnector(str(socket), force_close=True, limit=0),
            # A call takes as long as it takes: its deadline is the sidecar's business.
            timeout=aiohttp.ClientTimeout(sock_connect=SHORT_SECONDS),
            # So that what is counted is what is held.
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            # What it says is not for us to keep.
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    def identity(self) -> tuple[int, int] | None:
        """Differs between two frameworks, each of which binds the socket again; None while there is no socket."""
        try:
            status = self._socket.stat()
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns

    async def seems_ready(self) -> bool:
        """For who is about to call it: one that has just answered is not asked again."""
        return time.monotonic() - self._answered_at < FRESH_SECONDS or await self.is_ready()

    async def is_ready(self) -> bool:
        try:
            async with asyncio.timeout(SHORT_SECONDS), self._session.get(self._health_path) as answer:
                return answer.ok
        except (aiohttp.ClientError, OSError):
            return False

    async def invoke(self, call: Call) -> InvocationResult:
        self._answered_at = -FRESH_SECONDS
        try:
            async with self._session.post(self._invoke_path, json=call.to_json(), allow_redirects=False) as answer:
                content = await self._read(answer)
            if not 200 <= answer.status < 300:
                said = content[:200].decode(errors="replace")
                raise NoAnswerError(f"the framework refused the call: {answer.status} {said}", Loss.REFUSED)
            result = InvocationResult.model_validate(json.loads(content))
        except _TooMuchError:
            # To run it again would only make the same answer again.
            error = f"the answer is too large: more than {self._largest_answer} bytes"
            return InvocationResult(status_code=500, error=error)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NoAnswerError(f"the framework is away: {type(error).__name__}", Loss.NOT_RECEIVED) from error
        except (aiohttp.ClientResponseError, ValidationError, ValueError, RecursionError) as error:
            raise NoAnswerError(
                f"the framework's answer is unreadable: {type(error).__name__}", Loss.REFUSED
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswerError(f"the framework gave no answer: {type(error).__name__}", Loss.DIED) from error
        self._answered_at = time.monotonic()
        return result

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for part in answer.content.iter_any():
            content += part
            if len(content) > self._largest_answer:
                raise _TooMuchError
        return bytes(content)

    async def cancel(self, invocation_id: str) -> None:
        self._answered_at = -FRESH_SECONDS
        try:
            async with (
                asyncio.timeout(SHORT_SECONDS),
                self._session.post(CANCEL, json={"invocationID": invocation_id}),
            ):
                return
        except (aiohttp.ClientError, OSError):
            return
