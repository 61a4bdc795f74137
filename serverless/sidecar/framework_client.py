"""The framework, asked over its Unix socket."""

import json
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from pydantic import ValidationError

from gpu_platform.domain.invocations import LARGEST_BODY, InvocationResult
from serverless.framework.calls import CANCEL, HEALTH, INVOKE, Call

SHORT_SECONDS = 5.0

MARGIN = 1 << 20
"""Bytes of an answer besides its body."""


class NoAnswerError(Exception):
    """The framework died, or does not speak as it should: the call may be tried again."""


class _TooMuchError(Exception):
    """More than there is room for."""


class FrameworkClient:
    def __init__(
        self, socket: Path, invoke_path: str = INVOKE, health_path: str = HEALTH, largest_body: int = LARGEST_BODY
    ) -> None:
        self._largest_answer = largest_body + MARGIN
        self._invoke_path = invoke_path
        self._health_path = health_path
        # A call takes as long as it takes: its deadline is the sidecar's business.
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket), limits=httpx.Limits(max_connections=None)),
            base_url="http://framework",
            timeout=httpx.Timeout(SHORT_SECONDS, read=None),
            # So that what is counted is what is held.
            headers={"Accept-Encoding": "identity"},
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def is_ready(self) -> bool:
        try:
            return (await self._client.get(self._health_path, timeout=SHORT_SECONDS)).is_success
        except httpx.HTTPError:
            return False

    async def invoke(self, call: Call) -> InvocationResult:
        try:
            async with self._client.stream("POST", self._invoke_path, json=call.to_json()) as answer:
                content = await self._read(answer)
            if not answer.is_success:
                said = content[:200].decode(errors="replace")
                raise NoAnswerError(f"the framework refused the call: {answer.status_code} {said}")
            return InvocationResult.model_validate(json.loads(content))
        except _TooMuchError:
            # To run it again would only make the same answer again.
            error = f"the answer is too large: more than {self._largest_answer} bytes"
            return InvocationResult(status_code=500, error=error)
        except (httpx.HTTPError, ValidationError, ValueError, RecursionError) as error:
            raise NoAnswerError(f"the framework gave no answer: {type(error).__name__}") from error

    async def _read(self, answer: httpx.Response) -> bytes:
        content = bytearray()
        async for part in answer.aiter_bytes():
            content += part
            if len(content) > self._largest_answer:
                raise _TooMuchError
        return bytes(content)

    async def cancel(self, invocation_id: str) -> None:
        try:
            await self._client.post(CANCEL, json={"invocationID": invocation_id}, timeout=SHORT_SECONDS)
        except httpx.HTTPError:
            return
