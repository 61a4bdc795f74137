"""Deletes bodies that no invocation needs, where the process that should have done it died or came too early.

| bodies                                          | deleted                                                        |
| ----------------------------------------------- | -------------------------------------------------------------- |
| of a cancelled invocation                       | when its end is seen; a worker's late result at the next look  |
| payloads of a deleted function                  | at the next look; results stay for their callers               |
| of an invocation that was deleted or forgotten  | `ORPHAN_GRACE` after the first look that found no record       |
"""

import asyncio
import logging
import time
from datetime import datetime

from gpu_platform.domain.body_retention import BodyRetention, plan_bodies
from gpu_platform.nats.bodies import REQUEST, delete_bodies
from gpu_platform.nats.connection import JetStream
from gpu_platform.nats.listing import Listing
from gpu_platform.nats.records import Records
from reconciler.invocations.functions import FunctionExists
from reconciler.invocations.observe import Key, OpenCalls

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
"""Between two looks at all bodies."""

AT_ONCE = 16


class BodiesSweep:
    def __init__(
        self, js: JetStream, records: Records, open_calls: OpenCalls, function_may_exist: FunctionExists
    ) -> None:
        self._js = js
        self._records = records
        self._open = open_calls
        self._function_may_exist = function_may_exist
        self._looked_at: float | None = None
        self._kept: dict[Key, datetime] = {}
        """Invocations that are over and keep their bodies, and until when: an end never changes."""

        self._orphans: dict[Key, tuple[datetime, int]] = {}
        """Bodies without a record: since when, and the sequence below which they are stored."""

    async def sweep(self, now: datetime) -> int:
        """Returns of how many invocations it deleted the bodies. Call it after `OpenCalls.follow`."""
        cancelled = self._open.take_cancelled()
        slots = asyncio.Semaphore(AT_ONCE)

        async def delete(key: Key) -> None:
            async with slots:
                await self._delete(key)

        await asyncio.gather(*map(delete, cancelled))
        if self._looked_at is not None and time.monotonic() - self._looked_at < LOOK_SECONDS:
            return len(cancelled)
        self._looked_at = time.monotonic()
        return len(cancelled) + await self._look(now)

    async def _look(self, now: datetime) -> int:
        stored = await Listing(self._js).read_bodies()
        owners = {(tenant, invocation_id, function) for tenant, function, invocation_id in stored.owners}
        await self._delete_payloads_of_gone({(tenant, function) for tenant, _, function in owners})
        self._kept = {key: until for key, until in self._kept.items() if key in owners and until > now}
        self._orphans = {key: orphan for key, orphan in self._orphans.items() if key in owners}
        deleted = 0
        for key in sorted(owners):
            if key not in self._open and key not in self._kept:
                deleted += await self._judge(key, stored.next_sequence, now)
        if deleted:
            log.info("invocations.bodies_deleted", extra={"invocations": deleted})
        return deleted

    async def _judge(self, key: Key, next_sequence: int, now: datetime) -> bool:
        """Whether it deleted them."""
        tenant, invocation_id, function = key
        seen = await self._records.find(tenant, invocation_id, function)
        if seen is None:
            since, below = self._orphans.setdefault(key, (now, next_sequence))
        else:
            self._orphans.pop(key, None)
            since, below = None, None
        match plan_bodies(seen.call if seen else None, since, now):
            case BodyRetention.DELETE:
                # What was stored since may be of a new invocation under this id.
                await self._delete(key, below)
                return True
            case BodyRetention.KEEP_FOR_CALLER if seen is not None:
                self._kept[key] = (seen.call.finished_at or now) + self._records.retention
        return False

    async def _delete(self, key: Key, below: int | None = None) -> None:
        tenant, invocation_id, function = key
        await delete_bodies(self._js, tenant, function, invocation_id, below=below)

    async def _delete_payloads_of_gone(self, functions: set[tuple[str, str]]) -> None:
        """No invocation of a deleted function can be retried."""
        for tenant, function in sorted(functions):
            if not await self._function_may_exist(tenant, function):
                await delete_bodies(self._js, tenant, function, part=REQUEST)
