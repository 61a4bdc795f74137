"""Single flight: of many that ask the same question at the same time, one asks and all get its answer."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class SharedTasks(Generic[Key, Answer]):
    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Answer]] = {}

    async def join(self, key: Key, begin: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """The answer of whoever is asking already, or else of the one who begins now. A caller who goes away does not
        end it for the others."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(begin())
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        return await asyncio.shield(task)
