"""The programs of the stacks, one resource each. A run of one tells what it exported, what went wrong in it, and which
of its values are secret; and it closes the program's event loop.

The SDK gives a program a loop, and leaves it behind when the CLI ends before the program. That is no rare case: when a
provider refuses, the CLI ends, and the program still waits for its answer. The SDK then tries to log to the CLI, fails,
and neither closes the loop nor keeps quiet about it.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import pulumi
from pulumi.runtime.stack import Stack as RootStack

from gpu_platform.domain.stacks import Intent, StackKind
from providers.cluster.resources import GpuFunction, GpuStorage, GpuUnit, StockPool

LEAVE_SECONDS = 5.0
"""How long a program may take to notice that the CLI has ended. It notices at once: the connection breaks."""

POLL_SECONDS = 0.005

STILL_SECONDS = 0.1
"""A loop that ran for nothing in this time has been left for good: between two uses the SDK takes microseconds."""

ASYNCIO_LOGGER = logging.getLogger("asyncio")
GRPC_SERVER_LOGGER = logging.getLogger("grpc._server")
log = logging.getLogger(__name__)

SHORTEST_SECRET = 4
"""Characters. Anything shorter stands in every second message by chance."""


def build_program(intent: Intent) -> Callable[[], None]:
    """Declares what the API accepted."""

    def program() -> None:
        resource = _declare(intent)
        pulumi.export("uid", resource.uid)
        pulumi.export("acceptedHash", resource.accepted_hash)

    return program


def _declare(intent: Intent) -> GpuUnit | GpuStorage | GpuFunction | StockPool:
    address = intent.address
    fields: dict[str, Any] = {
        "name": address.name,
        "spec": intent.spec,
        "operation_id": intent.operation_id,
        "request_hash": intent.request_hash,
        "object_uid": intent.uid,
    }
    match address.kind:
        case StackKind.GPU_UNIT:
            return GpuUnit(address.name, tenant=address.tenant, **fields)
        case StackKind.GPU_STORAGE:
            return GpuStorage(address.name, tenant=address.tenant, **fields)
        case StackKind.GPU_FUNCTION:
            return GpuFunction(address.name, tenant=address.tenant, **fields)
        case StackKind.STOCK_POOL:
            return StockPool(address.name, **fields)


class AsyncioLogLevel:
    """The SDK switches asyncio's logging off, for the whole process, whenever a program begins."""

    def __init__(self) -> None:
        self._level = ASYNCIO_LOGGER.level

    def remember(self) -> None:
        if ASYNCIO_LOGGER.level != logging.CRITICAL:
            self._level = ASYNCIO_LOGGER.level

    def restore(self) -> None:
        ASYNCIO_LOGGER.setLevel(self._level)


class ProgramLoop:
    """Made within the program, so within its loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._theirs = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._handle)
        self._close = self._loop.close
        self._closing = threading.Lock()
        # Two threads that close one loop at once trip over each other, and the SDK's thread may come late.
        self._loop.close = self._close_alone  # type: ignore[method-assign]

    def close(self) -> None:
        """After the end of the CLI. The SDK closes the loop itself when all goes well; after a failure it goes on to
        cancel the program's tasks, in one run of the loop each, and may give up between two of them."""
        deadline = time.monotonic() + LEAVE_SECONDS
        ran_at = time.monotonic()
        while not self._loop.is_closed() and (now := time.monotonic()) < deadline:
            if self._loop.is_running():
                ran_at = now
            elif now - ran_at > STILL_SECONDS:
                break
            time.sleep(POLL_SECONDS)
        if not self._loop.is_running():
            self._loop.close()

    def _close_alone(self) -> None:
        with self._closing:
            self._close()

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The failure itself is told once, by the runner; tasks that nobody waits for any more are not worth a word.

        On a broken connection the SDK's handler would stop the loop in the middle of everything: a cancelled program
        ends in good order.
        """
        error = context.get("exception")
        if is_lost_connection(error) and self._task is not None:
            self._task.cancel()
        elif isinstance(error, grpc.RpcError) and self._theirs is not None:
            self._theirs(loop, context)
        log.debug("in a program's event loop: %s", context.get("message"))


def is_lost_connection(error: object) -> bool:
    return isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.UNAVAILABLE


class LostConnectionFilter(logging.Filter):
    """Drops the trace of a program that lost its CLI. Other failures of a server stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and is_lost_connection(record.exc_info[1]))


LOST_CONNECTION_FILTER = LostConnectionFilter()


def quiet_lost_connections() -> None:
    """For the whole process; twice is fine."""
    GRPC_SERVER_LOGGER.addFilter(LOST_CONNECTION_FILTER)


class ObservedProgram:
    """One run of one program. `outputs` count only when the CLI ended well: a program ends before its update does."""

    def __init__(self, program: Callable[[], None], log_level: AsyncioLogLevel) -> None:
        self._program = program
        self._log_level = log_level
        self._loop: ProgramLoop | None = None
        self.outputs: dict[str, Any] = {}
        self.error: Exception | None = None
        self.secrets: set[str] = set()

    def __call__(self) -> None:
        self._log_level.restore()
        self._loop = ProgramLoop()
        pulumi.runtime.register_stack_transformation(self._note_secrets)
        try:
            self._program()
        except Exception as error:
            self.error = error
            raise
        root = pulumi.runtime.get_root_resource()
        for name, value in root.outputs.items() if isinstance(root, RootStack) else ():
            pulumi.Output.from_input(value).apply(partial(self.outputs.__setitem__, name))

    def finish(self) -> None:
        """Once the CLI has ended."""
        if self._loop is not None:
            self._loop.close()

    def _note_secrets(self, arguments: pulumi.ResourceTransformationArgs) -> None:
        """Providers quote what they refuse, and the engine passes that on as it is."""
        for value in find_outputs(arguments.props):
            pulumi.Output.all(value, value.is_secret()).apply(lambda pair: self._note_if_secret(*pair))

    def _note_if_secret(self, value: Any, is_secret: bool) -> None:
        if is_secret:
            self.secrets.update(text for text in find_texts(value) if len(text) >= SHORTEST_SECRET)


def find_outputs(value: Any) -> Iterator["pulumi.Output[Any]"]:
    if isinstance(value, pulumi.Output):
        yield value
    else:
        for each in _list_members(value):
            yield from find_outputs(each)


def find_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for each in _list_members(value):
            yield from find_texts(each)


def _list_members(value: Any) -> tuple[Any, ...]:
    if isinstance(value, dict):
        return tuple(value.values())
    return tuple(value) if isinstance(value, list | tuple) else ()
