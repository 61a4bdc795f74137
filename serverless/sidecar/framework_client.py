"""The framework, asked over its Unix socket."""

from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from pydantic import ValidationError

from gpu_platform.domain.invocations import InvocationResult
from serverless.framework.calls import CANCEL, HEALTH, INVOKE, Call

SHORT_SECONDS = 5.0


class NoAnswerError(Exception):
    """The framework died, or does not speak as it should: the call may be tried again."""


class FrameworkClient:
    def __init__(self, socket: Path, invoke_path: str = INVOKE, health_path: str = HEALTH) -> None:
        self._invoke_path = invoke_path
        self._health_path = health_path
        # A call takes as long as it takes: its deadline is the sidecar's business.
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket), limits=httpx.Limits(max_connections=None)),
            base_url="http://framework",
            timeout=httpx.Timeout(SHORT_SECONDS, read=None),
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
            answer = await self._client.post(self._invoke_path, json=call.to_json())
            if not answer.is_success:
                raise NoAnswerError(f"the framework refused the call: {answer.status_code} {answer.text[:200]}")
            return InvocationResult.model_validate(answer.json())
        except (httpx.HTTPError, ValidationError, ValueError) as error:
            raise NoAnswerError(f"the framework gave no answer: {type(error).__name__}") from error

    async def cancel(self, invocation_id: str) -> None:
        try:
            await self._client.post(CANCEL, json={"invocationID": invocation_id}, timeout=SHORT_SECONDS)
        except httpx.HTTPError:
            return
