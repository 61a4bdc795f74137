"""The one Kubernetes client: plain JSON objects through `kubernetes.aio`'s connection and credentials.

The generated model classes are left aside on purpose: custom resources have none, and turning every object
into classes and back costs more than the request.

Where a schema allows any content, one object in a list can be nested more deeply than Python's parser follows; that
must not hide all others from us, so answers are read with a limit to their depth.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from kubernetes.aio import client as aio_client

from gpu_platform.domain.json_text import Json
from gpu_platform.kube.errors import QuotaBusyError, UnreachableError, error_from_status

Params = Mapping[str, str]

DEFAULT_TIMEOUT = 10.0
"""Seconds for one call. The API server answers in milliseconds; ten seconds means that it is not there."""

QUOTA_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds before an object is counted again. Chosen by feel: a count takes the API server a few milliseconds."""

LINE_BYTES = 16 * 1_024**2
"""Of a streamed answer. The API server refuses objects over 3 MiB; aiohttp's own limit of 128 KiB would end every watch
in which one object has a long annotation."""

log = logging.getLogger(__name__)

ANSWER_DEPTH = 100
"""Levels, those of the list around an object included. Our deepest schema has 20."""

_TOKENS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]|[^"\[\]{}]++', re.DOTALL)
"""Possessive: never tries a character twice."""


class PatchType(StrEnum):
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class KubeClient:
    """Requests to one API server. Every method raises only errors of `gpu_platform.kube.errors`."""

    def __init__(self, api: aio_client.ApiClient, user_agent: str = "gpu-platform") -> None:
        self._api = api
        self._user_agent = user_agent

    @property
    def server(self) -> str:
        return str(self._api.configuration.host)

    async def close(self) -> None:
        await self._api.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, path: str, params: Params | None = None, *, timeout: float = DEFAULT_TIMEOUT) -> Json:
        return await self._json("GET", path, params, timeout=timeout)

    async def create(
        self, path: str, body: Json, params: Params | None = None, *, timeout: float = DEFAULT_TIMEOUT
    ) -> Json:
        """Tries again, within the same timeout, where the API server could not count the object: it gives up after a
        few writers of the quota's counts were faster, and has written nothing."""
        end = time.monotonic() + timeout
        for pause in QUOTA_PAUSES:
            try:
                return await self._json("POST", path, params, body, timeout=end - time.monotonic())
            except QuotaBusyError:
                if time.monotonic() + pause >= end:
                    raise
                await asyncio.sleep(pause)
        return await self._json("POST", path, params, body, timeout=end - time.monotonic())

    async def replace(
        self, path: str, body: Json, params: Params | None = None, *, timeout: float = DEFAULT_TIMEOUT
    ) -> Json:
        return await self._json("PUT", path, params, body, timeout=timeout)

    async def patch(
        self,
        path: str,
        body: Json | list[Json],
        patch_type: PatchType = PatchType.MERGE,
        params: Params | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Json:
        return await self._json("PATCH", path, params, body, patch_type, timeout=timeout)

    async def delete(self, path: str, body: Json | None = None, *, timeout: float = DEFAULT_TIMEOUT) -> Json:
        """Delete with optional `DeleteOptions`, for example preconditions on the uid."""
        return await self._json("DELETE", path, None, body, timeout=timeout)

    async def text(self, path: str, params: Params | None = None, *, timeout: float = DEFAULT_TIMEOUT) -> str:
        async with self._response("GET", path, params, timeout=timeout) as response:
            return await response.text()

    async def lines(self, path: str, params: Params | None = None, *, silence: float) -> AsyncGenerator[bytes, None]:
        """Follow a streaming answer line by line; `silence` seconds without a byte end it as unreachable."""
        async with self._response("GET", path, params, timeout=_open_end(silence)) as response:
            while line := await _read_line(response.content, path):
                yield line

    async def chunks(self, path: str, params: Params | None = None, *, silence: float) -> AsyncGenerator[bytes, None]:
        """Follow a streaming answer as it comes, whatever its lines; otherwise as `lines`."""
        async with self._response("GET", path, params, timeout=_open_end(silence)) as response:
            async for chunk in response.content.iter_any():
                yield chunk

    async def _json(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: Json | list[Json] | None = None,
        content_type: str = "application/json",
        *,
        timeout: float,
    ) -> Json:
        async with self._response(method, path, params, body, content_type, timeout=timeout) as response:
            answer: Json = await response.json(content_type=None, loads=parse_answer)
            return answer

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: Json | list[Json] | None = None,
        content_type: str = "application/json",
        *,
        timeout: float | aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        query = f"?{urlencode(params)}" if params else ""
        limit = aiohttp.ClientTimeout(total=timeout) if isinstance(timeout, int | float) else timeout
        headers = {
            "Accept": "application/json, */*",
            "Content-Type": content_type,
            "User-Agent": self._user_agent,
        }
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        try:
            raw = await self._api.rest_client.request(
                method, f"{self.server}{path}{query}", headers=headers, body=body, _request_timeout=limit
            )
            async with raw.response as response:
                if response.status >= 400:
                    raise error_from_status(response.status, _status_body(await response.text()))
                yield response
        except TimeoutError as error:
            raise UnreachableError(0, "Timeout", f"{method} {path} had no answer in time") from error
        except aiohttp.ClientError as error:
            raise UnreachableError(0, "Unreachable", f"{method} {path}: {error}") from error


async def _read_line(content: aiohttp.StreamReader, path: str) -> bytes:
    try:
        return await content.readline(max_line_length=LINE_BYTES)
    except LineTooLong as error:
        raise UnreachableError(0, "LineTooLong", f"GET {path}: a line has more than {LINE_BYTES} bytes") from error


def _open_end(silence: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=DEFAULT_TIMEOUT, sock_read=silence)


def _status_body(text: str) -> Json:
    try:
        body = json.loads(text)
    except ValueError:
        return {"message": text}
    return body if isinstance(body, dict) else {"message": text}


def parse_answer(text: str | bytes) -> Any:
    """Returns the JSON of an answer; with null in the place of what is deeper than `ANSWER_DEPTH`, if the parser cannot
    follow it."""
    try:
        return json.loads(text)
    except RecursionError:
        log.warning("answer.too_deep", extra={"depth": ANSWER_DEPTH, "bytes": len(text)})
        return json.loads(cut_deep(text if isinstance(text, str) else text.decode(), ANSWER_DEPTH))


def cut_deep(text: str, depth: int) -> str:
    """Returns the JSON text with null in the place of all arrays and objects that are deeper than this.

    | text, for depth 1      | →                    |
    | ---------------------- | -------------------- |
    | `{"a": [1]}`           | `{"a": null}`        |
    | `[1, "[", {"b": {}}]`  | `[1, "[", null]`     |
    | `{"a": 1}`             | the same             |
    """
    kept: list[str] = []
    level = 0
    for token in _TOKENS.findall(text):
        if token in ("[", "{"):
            level += 1
            if level == depth + 1:
                kept.append("null")
        if level <= depth:
            kept.append(token)
        if token in ("]", "}"):
            level -= 1
    return "".join(kept)
