"""`@handler`: a function of the user's, how many calls it takes at once, and what it does before the first one."""

import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, overload

Handler = Callable[..., Any]


class LoadError(Exception):
    """There is no such handler."""


@dataclass(frozen=True)
class Context:
    """The call besides its payload."""

    invocation_id: str
    attempt: int
    deadline: datetime | None
    content_type: str
    headers: dict[str, str]
    attributes: dict[str, str]
    cancelled: threading.Event = field(default_factory=threading.Event, compare=False)
    """Set when nobody wants the answer any more. An async handler is cancelled as well."""


class Function:
    """Still callable as it was written, so that it can be tested as it was written."""

    def __init__(self, handle: Handler, concurrency: int) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}, and should be at least 1")
        self._handle = handle
        self._takes_context = _count_parameters(handle) > 1
        self._start: Callable[[], Any] | None = None
        self.concurrency = concurrency
        self.is_async = inspect.iscoroutinefunction(handle)
        self.__doc__ = handle.__doc__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._handle(*arguments, **named)

    def on_start(self, start: Callable[[], Any]) -> Callable[[], Any]:
        """Decorates what is to be done once, before the first call: load a model. Until it is done, the worker is not
        ready."""
        self._start = start
        return start

    def start(self) -> None:
        if self._start is not None:
            self._start()

    def invoke(self, payload: Any, context: Context) -> Any:
        """The result, or a coroutine of it."""
        return self._handle(payload, context) if self._takes_context else self._handle(payload)


@overload
def handler(handle: Handler) -> Function: ...


@overload
def handler(*, concurrency: int = 1) -> Callable[[Handler], Function]: ...


def handler(handle: Handler | None = None, *, concurrency: int = 1) -> Function | Callable[[Handler], Function]:
    """`@handler` or `@handler(concurrency=4)`, on `def f(payload)` or `def f(payload, context)`, async or not."""
    if handle is not None:
        return Function(handle, concurrency)
    return lambda handle: Function(handle, concurrency)


def load_function(place: str) -> Function:
    """`module:name` or `path/to/file.py:name`."""
    module_name, _, name = place.rpartition(":")
    if not module_name or not name:
        raise LoadError(f"{place!r} should be module:function or file.py:function")
    if module_name.endswith(".py"):
        file = Path(module_name).resolve()
        sys.path.insert(0, str(file.parent))
        module_name = file.stem
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except ImportError as error:
        raise LoadError(f"{module_name} cannot be imported: {error}") from error
    if isinstance(found, Function):
        return found
    if callable(found):
        raise LoadError(f"{name} in {module_name} is no handler: decorate it with @handler")
    raise LoadError(f"there is no {name} in {module_name}")


def _count_parameters(handle: Handler) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in inspect.signature(handle).parameters.values())
