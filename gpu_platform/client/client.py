"""`Client` and `AsyncClient`: the I/O of the steps that `calls`, `wait` and `events` decide. URL and key come from
arguments, or else from the environment. The command line takes the key from the environment alone, so that no list of
processes and no shell history shows it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Self, TypeVar

import httpx

from gpu_platform.client.calls import SILENCE_SECONDS, Answer, Conduct, Exchange, Operation, Pause, Retries, Steps
from gpu_platform.client.errors import (
    CONNECT_SECONDS,
    NotConfiguredError,
    PlatformError,
    UnsendableError,
    build_unreachable,
    check_status,
)
from gpu_platform.client.events import Stream
from gpu_platform.client.method import Awaited, AwaitedRaw, Blocking, BlockingRaw, Request
from gpu_platform.client.resources import Resources
from gpu_platform.domain.network import is_loopback

URL_VARIABLE = "GPU_PLATFORM_URL"
KEY_VARIABLE = "GPU_PLATFORM_KEY"
"""Not GPU_PLATFORM_API_…: what begins so is a setting of the API's own process."""

PREFIX = "/api/v1"
DEFAULT_RETRIES = Retries()

T = TypeVar("T")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)


def find_connection(
    url: str | None = None,
    key: str | None = None,
    *,
    needs_key: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> tuple[str, str | None]:
    """URL and key, or NotConfiguredError with what is missing."""
    address = url or environment.get(URL_VARIABLE)
    # A key that was read from a file often ends with the line's end.
    key = (key or environment.get(KEY_VARIABLE, "")).strip() or None
    missing = [
        *([f"{URL_VARIABLE} (or --url)"] if not address else []),
        *([KEY_VARIABLE] if needs_key and not key else []),
    ]
    if missing or not address:
        raise NotConfiguredError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: "
            'run  eval "$(gpu-platform dev env)"  for the embedded cluster, or set them yourself'
        )
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise NotConfiguredError(f"{KEY_VARIABLE} holds characters that no key has: copy it again")
    return address, key


def parse_url(text: str) -> httpx.URL:
    """The address of an API, or NotConfiguredError. The error does not show it: a wrong one may hold a password."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    is_http = url.scheme in ("http", "https") and bool(url.host) and (url.port or 1) <= 65_535
    if not is_http or url.userinfo or url.query:
        raise NotConfiguredError(
            "the platform's URL (GPU_PLATFORM_URL or --url) should look like http://127.0.0.1:8080, "
            "without a password in it"
        )
    return url


class _Connection(Generic[H]):
    """The HTTP client of one platform."""

    def __init__(self, kind: type[H], url: str | None, key: str | None, retries: Retries, *, needs_key: bool) -> None:
        address, key = find_connection(url, key, needs_key=needs_key)
        self.conduct = Conduct(address.rstrip("/"), retries)
        self.http: H = kind(
            base_url=f"{self.conduct.url}{PREFIX}",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            # A proxy of the environment does not know this machine's own addresses.
            trust_env=not is_loopback(parse_url(address).host),
        )

    def build(self, step: Exchange) -> httpx.Request:
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS, read=step.silence_seconds)
        params = step.params or None
        try:
            return self.http.build_request(
                step.method, step.path, params=params, json=step.body, headers=step.headers, timeout=timeout
            )
        except UnicodeEncodeError:
            # Words of the command line that are not UTF-8 come with lone surrogates in them.
            raise UnsendableError("the request holds text that is not Unicode: write it in UTF-8") from None

    def check(self, response: httpx.Response) -> None:
        check_status(response, self.conduct.url, is_repeated=False)

    def translate(self, error: httpx.RequestError) -> PlatformError:
        """The error of a stream, which is always a read."""
        return build_unreachable(error, self.conduct.url, is_read=True, is_repeated=False)


class RawClient(Resources[BlockingRaw], BlockingRaw):
    """The methods of `Client`, each with the whole answer: its JSON as it was sent, its ETag, whether it is new."""

    def __init__(self, url: str | None, key: str | None, retries: Retries, *, needs_key: bool) -> None:
        super().__init__(self)
        self._connection = _Connection(httpx.Client, url, key, retries, needs_key=needs_key)

    def send(self, operation: Operation[T], show: Callable[[str, float], None] | None = None) -> Answer[T]:
        """Carries out an operation. `show` is told each state that a wait sees, with the seconds so far."""
        conduct = self._connection.conduct
        return self._run(operation.steps(replace(conduct, show=show) if show else conduct))

    def perform(self, request: Request) -> Any:
        return self.send(request) if isinstance(request, Operation) else self._iterate(request)

    def close(self) -> None:
        self._connection.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        advance: Callable[[], Exchange | Pause] = partial(next, steps)
        while True:
            try:
                step = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                advance = partial(steps.send, self._take(step))
            except httpx.RequestError as error:
                advance = partial(steps.throw, error)

    def _take(self, step: Exchange | Pause) -> httpx.Response | None:
        if isinstance(step, Exchange):
            return self._connection.http.send(self._connection.build(step))
        time.sleep(step.seconds)
        return None

    def _iterate(self, stream: Stream[T]) -> Iterator[T]:
        pause: float | None = 0.0
        while pause is not None:
            time.sleep(pause)
            failure: PlatformError | None = None
            try:
                request = self._connection.build(stream.build_exchange())
                with closing(self._connection.http.send(request, stream=True)) as response:
                    if not response.is_success:
                        response.read()
                    self._connection.check(response)
                    stream.begin()
                    for piece in response.iter_bytes():
                        yield from stream.feed(piece)
            except httpx.RequestError as error:
                failure = self._connection.translate(error)
            except PlatformError as error:
                failure = error
            pause = stream.find_pause(failure)


class Client(Resources[Blocking], Blocking):
    """The platform's API. URL and key are those of the environment by default. Close it, or use it in a `with`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        needs_key: bool = True,
        retries: Retries = DEFAULT_RETRIES,
    ) -> None:
        super().__init__(self)
        self.with_raw_response = RawClient(url, key, retries, needs_key=needs_key)

    def perform(self, request: Request) -> Any:
        result = self.with_raw_response.perform(request)
        return result.value if isinstance(result, Answer) else result

    def close(self) -> None:
        self.with_raw_response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRawClient(Resources[AwaitedRaw], AwaitedRaw):
    """The methods of `AsyncClient`, each with the whole answer."""

    def __init__(self, url: str | None, key: str | None, retries: Retries, *, needs_key: bool) -> None:
        super().__init__(self)
        self._connection = _Connection(httpx.AsyncClient, url, key, retries, needs_key=needs_key)

    async def send(self, operation: Operation[T]) -> Answer[T]:
        return await self._run(operation.steps(self._connection.conduct))

    def perform(self, request: Request) -> Any:
        return self.send(request) if isinstance(request, Operation) else self._iterate(request)

    async def close(self) -> None:
        await self._connection.http.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        advance: Callable[[], Exchange | Pause] = partial(next, steps)
        while True:
            try:
                step = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                advance = partial(steps.send, await self._take(step))
            except httpx.RequestError as error:
                advance = partial(steps.throw, error)

    async def _take(self, step: Exchange | Pause) -> httpx.Response | None:
        if isinstance(step, Exchange):
            return await self._connection.http.send(self._connection.build(step))
        await asyncio.sleep(step.seconds)
        return None

    async def _iterate(self, stream: Stream[T]) -> AsyncIterator[T]:
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            failure: PlatformError | None = None
            try:
                request = self._connection.build(stream.build_exchange())
                async with aclosing(await self._connection.http.send(request, stream=True)) as response:
                    if not response.is_success:
                        await response.aread()
                    self._connection.check(response)
                    stream.begin()
                    async for piece in response.aiter_bytes():
                        for item in stream.feed(piece):
                            yield item
            except httpx.RequestError as error:
                failure = self._connection.translate(error)
            except PlatformError as error:
                failure = error
            pause = stream.find_pause(failure)


class AsyncClient(Resources[Awaited], Awaited):
    """As `Client`, with coroutines and async iterators."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        needs_key: bool = True,
        retries: Retries = DEFAULT_RETRIES,
    ) -> None:
        super().__init__(self)
        self.with_raw_response = AsyncRawClient(url, key, retries, needs_key=needs_key)

    def perform(self, request: Request) -> Any:
        return self._value(request) if isinstance(request, Operation) else self.with_raw_response.perform(request)

    async def _value(self, operation: Operation[T]) -> T:
        return (await self.with_raw_response.send(operation)).value

    async def close(self) -> None:
        await self.with_raw_response.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
