"""A program that tells what it exported, what went wrong in it, and which of its values are secret."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pulumi
from pulumi.runtime.stack import Stack as RootStack

from stacks.runner.event_loops import AsyncioLogLevel, ProgramLoop

SHORTEST_SECRET = 4
"""Characters. Anything shorter stands in every second message by chance."""


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
