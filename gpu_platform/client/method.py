"""One definition of each method for four kinds of clients: `client.units.get(…)` returns a unit, and the same method of
an async client a coroutine of one; their `with_raw_response` return the whole answer."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from gpu_platform.client.calls import Answer, Operation
from gpu_platform.client.events import LogStream, ServerEvent, WatchStream

P = ParamSpec("P")
T = TypeVar("T")


Request = Operation[Any] | LogStream | WatchStream[Any]


class Sender(ABC):
    """What a client does with the requests that its methods build."""

    @abstractmethod
    def perform(self, request: Request) -> Any: ...


class Blocking(Sender):
    """Returns values."""


class BlockingRaw(Sender):
    """Returns answers."""


class Awaited(Sender):
    """Returns coroutines of values."""


class AwaitedRaw(Sender):
    """Returns coroutines of answers."""


S = TypeVar("S", bound=Sender)


class Group(Generic[S]):
    """The methods of one resource."""

    def __init__(self, sender: S) -> None:
        self.sender = sender


class _Method(Generic[P]):
    """Turns a function that builds a request into a method that performs it. `.build` is the function."""

    def __init__(self, build: Callable[Concatenate[Any, P], Request]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def _bind(self, group: Group[Any]) -> Callable[P, Any]:
        def perform(*args: P.args, **options: P.kwargs) -> Any:
            return group.sender.perform(self.build(group, *args, **options))

        return perform


class method(_Method[P], Generic[P, T]):  # noqa: N801 - a decorator
    """A method with one result."""

    def __init__(self, build: Callable[Concatenate[Any, P], Operation[T]]) -> None:
        super().__init__(build)

    @overload
    def __get__(self, group: Group[Blocking], owner: object) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: Group[BlockingRaw], owner: object) -> Callable[P, Answer[T]]: ...
    @overload
    def __get__(self, group: Group[Awaited], owner: object) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, group: Group[AwaitedRaw], owner: object) -> Callable[P, Coroutine[Any, Any, Answer[T]]]: ...
    def __get__(self, group: Group[Any], owner: object) -> Callable[P, Any]:
        return self._bind(group)


class log_method(_Method[P]):  # noqa: N801 - a decorator
    """A method that reads a text piece by piece."""

    def __init__(self, build: Callable[Concatenate[Any, P], LogStream]) -> None:
        super().__init__(build)

    @overload
    def __get__(self, group: Group[Blocking] | Group[BlockingRaw], owner: object) -> Callable[P, Iterator[bytes]]: ...
    @overload
    def __get__(
        self, group: Group[Awaited] | Group[AwaitedRaw], owner: object
    ) -> Callable[P, AsyncIterator[bytes]]: ...
    def __get__(self, group: Group[Any], owner: object) -> Callable[P, Any]:
        return self._bind(group)


class watch_method(_Method[P], Generic[P, T]):  # noqa: N801 - a decorator
    """A method that watches changes."""

    def __init__(self, build: Callable[Concatenate[Any, P], WatchStream[T]]) -> None:
        super().__init__(build)

    @overload
    def __get__(
        self, group: Group[Blocking] | Group[BlockingRaw], owner: object
    ) -> Callable[P, Iterator[ServerEvent[T]]]: ...
    @overload
    def __get__(
        self, group: Group[Awaited] | Group[AwaitedRaw], owner: object
    ) -> Callable[P, AsyncIterator[ServerEvent[T]]]: ...
    def __get__(self, group: Group[Any], owner: object) -> Callable[P, Any]:
        return self._bind(group)
