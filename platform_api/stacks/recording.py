"""Waiting for a stack to be recorded. However many wait for one of them, one asks."""

import asyncio
from typing import Any

from gpu_platform.domain.stack_records import is_recorded
from gpu_platform.domain.stacks import Intent, intent_of
from gpu_platform.kube import KubeError
from gpu_platform.store.stacks import find_record
from platform_api.bounded_client import BoundedClient
from platform_api.single_flight import SharedTasks

Json = dict[str, Any]

WAIT_SECONDS = 30.0
"""Recording one stack takes about a second; a queue of them, longer."""

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5
WAITING_LIMIT = 64
"""Requests that wait at once; beyond it, nobody waits. Each takes the place of another request that could be under
way, and asks Kubernetes twice a second."""


class RecordingWaits:
    def __init__(self, client: BoundedClient) -> None:
        self._client = client
        self._polls = SharedTasks[tuple[str, str], bool]()
        self._waiting = 0

    async def wait(self, item: Json) -> bool:
        """Whether its stack says what was accepted: as soon as it does, or once the time is over. Whoever joins others
        waits no longer than they do."""
        intent = intent_of(item)
        if intent is None or self._waiting >= WAITING_LIMIT:
            return intent is not None and await self._look(intent)
        self._waiting += 1
        try:
            return await self._polls.join((intent.uid, intent.accepted_hash), lambda: self._poll(intent))
        finally:
            self._waiting -= 1

    async def _poll(self, intent: Intent) -> bool:
        pause = FIRST_PAUSE_SECONDS
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not await self._look(intent):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        except TimeoutError:
            return False
        return True

    async def _look(self, intent: Intent) -> bool:
        try:
            return is_recorded(await find_record(self._client, intent.address), intent)
        except KubeError:
            # The unit is accepted, whatever is away by now; that is what the caller has to be told.
            return False
