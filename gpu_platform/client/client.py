"""`Client` and `AsyncClient`: the I/O of the steps that `calls`, `wait` and `events` decide."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import httpx

from gpu_platform.client.calls import SILENCE_SECONDS, Answer, Conduct, Exchange, Operation, Pause, Retries, Steps
from gpu_platform.client.connection import find_connection, parse_url
from gpu_platform.client.errors import (
    CONNECT_SECONDS,
    PlatformError,
    UnsendableError,
    build_unreachable,
    check_status,
)
from gpu_platform.client.events import RECONNECT_SECONDS, LogStream, ServerEvent, WatchSession, WatchStream
from gpu_platform.client.method import Awaited, AwaitedRaw, Blocking, BlockingRaw, Request
from gpu_platform.client.resources import Resources
from gpu_platform.domain.network import is_loopback

PREFIX = "/api/v1"

T = TypeVar("T")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)


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
        try:
            return self.http.build_request(
                step.method,
                step.path,
                params=step.params or None,
                json=step.body,
                headers=step.headers,
                timeout=timeout,
            )
        except UnicodeEncodeError:
            # Words of the command line that are not UTF-8 come with lone surrogates in them.
            raise UnsendableError("the request holds text that is not Unicode: write it in UTF-8") from None

    def check(self, response: httpx.Response) -> None:
        check_status(response, self.conduct.url, is_repeated=False)

    def translate(self, error: httpx.RequestError) -> PlatformError:
        """The error of a stream, which is always a read."""
        return build_unreachable(error, self.conduct.url, is_read=True, is_repeated=False)


class _BlockingIO(_Connection[httpx.Client]):
    def run(self, steps: Steps[T]) -> T:
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
            return self.http.send(self.build(step))
        time.sleep(step.seconds)
        return None

    def read(self, stream: LogStream) -> Iterator[bytes]:
        with self._open(stream.build_exchange()) as response:
            yield from response.iter_bytes()

    def watch(self, stream: WatchStream[T]) -> Iterator[ServerEvent[T]]:
        session = WatchSession(stream)
        while True:
            try:
                with self._open(session.build_exchange()) as response:
                    session.begin()
                    for line in response.iter_lines():
                        yield from session.feed(line)
            except PlatformError as error:
                session.check(error)
            time.sleep(RECONNECT_SECONDS)

    @contextmanager
    def _open(self, exchange: Exchange) -> Iterator[httpx.Response]:
        request = self.build(exchange)
        try:
            response = self.http.send(request, stream=True)
            try:
                if not response.is_success:
                    response.read()
                self.check(response)
                yield response
            finally:
                response.close()
        except httpx.RequestError as error:
            raise self.translate(error) from None


class _AsyncIO(_Connection[httpx.AsyncClient]):
    async def run(self, steps: Steps[T]) -> T:
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
            return await self.http.send(self.build(step))
        await asyncio.sleep(step.seconds)
        return None

    async def read(self, stream: LogStream) -> AsyncIterator[bytes]:
        async with self._open(stream.build_exchange()) as response:
            async for piece in response.aiter_bytes():
                yield piece

    async def watch(self, stream: WatchStream[T]) -> AsyncIterator[ServerEvent[T]]:
        session = WatchSession(stream)
        while True:
            try:
                async with self._open(session.build_exchange()) as response:
                    session.begin()
                    async for line in response.aiter_lines():
                        for event in session.feed(line):
                            yield event
            except PlatformError as error:
                session.check(error)
            await asyncio.sleep(RECONNECT_SECONDS)

    @asynccontextmanager
    async def _open(self, exchange: Exchange) -> AsyncIterator[httpx.Response]:
        request = self.build(exchange)
        try:
            response = await self.http.send(request, stream=True)
            try:
                if not response.is_success:
                    await response.aread()
                self.check(response)
                yield response
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            raise self.translate(error) from None


class RawClient(Resources[BlockingRaw], BlockingRaw):
    """The methods of `Client`, each with the whole answer: its JSON as it was sent, its ETag, whether it is new."""

    def __init__(self, io: _BlockingIO) -> None:
        super().__init__(self)
        self._io = io

    def send(self, operation: Operation[T]) -> Answer[T]:
        return self._io.run(operation.steps(self._io.conduct))

    def perform(self, request: Request) -> Any:
        match request:
            case LogStream():
                return self._io.read(request)
            case WatchStream():
                return self._io.watch(request)
        return self.send(request)

    def close(self) -> None:
        self._io.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Client(Resources[Blocking], Blocking):
    """The platform's API. URL and key are those of the environment by default. Close it, or use it in a `with`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        needs_key: bool = True,
        retries: Retries = Retries(),  # noqa: B008 - a value
    ) -> None:
        super().__init__(self)
        self.with_raw_response = RawClient(_BlockingIO(httpx.Client, url, key, retries, needs_key=needs_key))

    def perform(self, request: Request) -> Any:
        result = self.with_raw_response.perform(request)
        return result.value if isinstance(result, Answer) else result

    def close(self) -> None:
        self.with_raw_response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncRawClient(Resources[AwaitedRaw], AwaitedRaw):
    """The methods of `AsyncClient`, each with the whole answer."""

    def __init__(self, io: _AsyncIO) -> None:
        super().__init__(self)
        self._io = io

    async def send(self, operation: Operation[T]) -> Answer[T]:
        return await self._io.run(operation.steps(self._io.conduct))

    def perform(self, request: Request) -> Any:
        match request:
            case LogStream():
                return self._io.read(request)
            case WatchStream():
                return self._io.watch(request)
        return self.send(request)

    async def close(self) -> None:
        await self._io.http.aclose()


class AsyncClient(Resources[Awaited], Awaited):
    """As `Client`, with coroutines and async iterators."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        needs_key: bool = True,
        retries: Retries = Retries(),  # noqa: B008 - a value
    ) -> None:
        super().__init__(self)
        self.with_raw_response = AsyncRawClient(_AsyncIO(httpx.AsyncClient, url, key, retries, needs_key=needs_key))

    def perform(self, request: Request) -> Any:
        if isinstance(request, Operation):
            return self._value(request)
        return self.with_raw_response.perform(request)

    async def _value(self, operation: Operation[T]) -> T:
        return (await self.with_raw_response.send(operation)).value

    async def close(self) -> None:
        await self.with_raw_response.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
