"""One definition of each method for four kinds of clients: `client.units.get(…)` returns a unit, and the same method of
an async client a coroutine of one; their `with_raw_response` return the whole answer."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from gpu_platform.client.calls import Answer, Operation
from gpu_platform.client.events import Stream

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

Request = Operation[Any] | Stream[Any]


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


class Bound(Generic[P, T, R]):
    """A method of one client. `build` makes its request without performing it."""

    def __init__(self, group: Group[Any], build: Callable[Concatenate[Any, P], Any]) -> None:
        self._group = group
        self._build = build
        self.__doc__ = build.__doc__

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        result: R = self._group.sender.perform(self.build(*args, **options))
        return result

    def build(self, *args: P.args, **options: P.kwargs) -> T:
        request: T = self._build(self._group, *args, **options)
        return request


class method(Generic[P, T]):  # noqa: N801 - a decorator
    """Turns a function that builds an operation into a method that carries it out."""

    def __init__(self, build: Callable[Concatenate[Any, P], Operation[T]]) -> None:
        self._build = build

    @overload
    def __get__(self, group: Group[Blocking], owner: object) -> Bound[P, Operation[T], T]: ...
    @overload
    def __get__(self, group: Group[BlockingRaw], owner: object) -> Bound[P, Operation[T], Answer[T]]: ...
    @overload
    def __get__(self, group: Group[Awaited], owner: object) -> Bound[P, Operation[T], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(
        self, group: Group[AwaitedRaw], owner: object
    ) -> Bound[P, Operation[T], Coroutine[Any, Any, Answer[T]]]: ...
    def __get__(self, group: Group[Any], owner: object) -> Bound[P, Operation[T], Any]:
        return Bound(group, self._build)


class stream_method(Generic[P, T]):  # noqa: N801 - a decorator
    """Turns a function that builds a stream into a method that iterates over what arrives."""

    def __init__(self, build: Callable[Concatenate[Any, P], Stream[T]]) -> None:
        self._build = build

    @overload
    def __get__(
        self, group: Group[Blocking] | Group[BlockingRaw], owner: object
    ) -> Bound[P, Stream[T], Iterator[T]]: ...
    @overload
    def __get__(
        self, group: Group[Awaited] | Group[AwaitedRaw], owner: object
    ) -> Bound[P, Stream[T], AsyncIterator[T]]: ...
    def __get__(self, group: Group[Any], owner: object) -> Bound[P, Stream[T], Any]:
        return Bound(group, self._build)
