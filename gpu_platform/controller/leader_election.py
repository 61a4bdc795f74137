"""One leader at a time, by a `coordination.k8s.io` Lease.

A leader may write until its deadline, a moment of its own monotonic clock: `renew` after it *sent* the last
renewal that was acknowledged. Others take the Lease only after they saw it unchanged for `duration`, which is
longer. So a leader that was stopped, suspended or cut off knows by itself that its time is over, before anybody
else begins, whatever the wall clocks say. Only the wall clock's *rate* is trusted.

The gap between the two (5 s) is the time that a write, sent at the last moment, has to arrive.
"""

import asyncio
import logging
import math
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gpu_platform.clock import format_micro_time, now_utc
from gpu_platform.domain.json_text import Json
from gpu_platform.kube.client import KubeClient
from gpu_platform.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from gpu_platform.kube.fencing import Clock, Leadership, NotLeaderError, always_leading, uptime
from gpu_platform.kube.paths import LEASES

__all__ = ["LeaderElector", "Leadership", "LeaseTiming", "NotLeaderError", "always_leading"]

log = logging.getLogger(__name__)

Lead = Callable[[Leadership], Awaitable[None]]

RELEASE_SECONDS = 2.0
"""For giving the Lease back on the way out; when it takes longer, the others wait for its end instead."""


STUCK_SECONDS = 60.0
STUCK = 70
"""The exit code of a process whose work does not end although its lease is lost."""

SHORTEST_PAUSE = 0.01
"""Seconds. Two clocks never agree to the last digit; without it the last moment of a term would be a busy loop."""


@dataclass(frozen=True)
class LeaseTiming:
    """The same numbers as in Kubernetes' own controllers."""

    duration: timedelta = timedelta(seconds=15)
    """Others take over when the Lease has not changed for this long. Whole seconds."""

    renew: timedelta = timedelta(seconds=10)
    """The leader stops by itself when no renewal succeeded for this long."""

    retry: timedelta = timedelta(seconds=2)
    """Between two renewals, and between two looks of a candidate."""

    @classmethod
    def lasting(cls, duration: timedelta) -> "LeaseTiming":
        """The default timing, scaled to this duration."""
        return cls(duration, duration * 2 / 3, duration * 2 / 15)


DEFAULT_TIMING = LeaseTiming()


class LeaderElector:
    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        *,
        identity: str | None = None,
        timing: LeaseTiming = DEFAULT_TIMING,
        clock: Clock = uptime,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
        self._duration = timing.duration.total_seconds()
        self._renew = timing.renew.total_seconds()
        self._retry = timing.retry.total_seconds()
        self._clock = clock
        self._lease: Json = {}
        self._expires_at = math.inf
        self._may_hold = False
        self.leadership = Leadership(clock)

    async def run(self, lead: Lead) -> None:
        """Wait for the Lease, run `lead` while it is held, cancel it when it is lost, and wait again.

        Ends when `lead` ends by itself, or when cancelled; the Lease is given back then, so that the next
        candidate need not wait for its end.
        """
        try:
            while True:
                await self._acquire()
                if await self._hold(lead):
                    return
        finally:
            self.leadership.end()
            await self._release()

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._try_acquire():
                    log.info("leader.started", extra={"identity": self.identity, "epoch": self.leadership.epoch})
                    return
            except KubeError as error:
                log.warning("leader.lease_unreachable", extra={"lease": self._name, "error": str(error)})
            await asyncio.sleep(self._until_next_look())

    def _until_next_look(self) -> float:
        """A retry, or until the present term ends if that comes first: nobody waits for a term that is over."""
        left = self._expires_at - self._clock()
        retry = self._retry * (1 + 0.1 * random.random())
        return min(max(left, SHORTEST_PAUSE), retry) if left > 0 else retry

    async def _try_acquire(self) -> bool:
        try:
            self._look_at(await self._client.get(self._path, timeout=self._retry))
        except NotFoundError:
            return await self._take({"metadata": {"name": self._name}}, self._create)
        holder = self._lease["spec"].get("holderIdentity")
        if holder and holder != self.identity and self._clock() < self._expires_at:
            return False
        return await self._take(self._lease, self._replace)

    def _look_at(self, lease: Json) -> None:
        """A term's end is counted on our own clock, from when we first saw the Lease as it is."""
        lease.setdefault("spec", {})
        if lease["spec"] != self._lease.get("spec"):
            seconds = lease["spec"].get("leaseDurationSeconds") or self._duration
            self._expires_at = self._clock() + seconds
        self._lease = lease

    async def _take(self, lease: Json, write: Callable[[Json], Coroutine[Any, Any, Json]]) -> bool:
        epoch = int(lease.get("spec", {}).get("leaseTransitions") or 0) + 1
        spec = self._build_term()
        spec |= {"acquireTime": spec["renewTime"], "leaseTransitions": epoch}
        sent_at = self._clock()
        self._may_hold = True
        try:
            self._lease = await write(lease | {"spec": spec})
        except (AlreadyExistsError, ConflictError):
            self._may_hold = False
            return False
        self._expires_at = math.inf
        self.leadership.begin(epoch, sent_at + self._renew)
        return self.leadership.is_leader

    async def _hold(self, lead: Lead) -> bool:
        """Lead until the work ends by itself (True) or the Lease is lost (False)."""
        work = asyncio.ensure_future(lead(self.leadership))
        renewals = asyncio.create_task(self._keep_renewing())
        try:
            await asyncio.wait({work, renewals}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and self.leadership.is_leader:
                work.result()
                return True
            if renewals.done():
                renewals.result()
            log.warning("leader.lost", extra={"identity": self.identity, "epoch": self.leadership.epoch})
            self.leadership.end()
            self._lease, self._expires_at = {}, math.inf
            return False
        finally:
            # The work first: as long as it runs, the Lease is kept.
            await _end(work)
            await _end(renewals)

    async def _keep_renewing(self) -> None:
        """Return when the Lease is lost."""
        while True:
            await asyncio.sleep(min(self._retry, max(self.leadership.seconds_left, SHORTEST_PAUSE)))
            if not self.leadership.is_leader:
                return
            sent_at = self._clock()
            try:
                self._lease = await self._replace(self._lease | {"spec": self._lease["spec"] | self._build_term()})
                self.leadership.extend(sent_at + self._renew)
            except (ConflictError, NotFoundError):
                if not await self._still_ours():
                    return
            except KubeError as error:
                log.warning("leader.renewal_failed", extra={"lease": self._name, "error": str(error)})

    async def _still_ours(self) -> bool:
        """After a conflict: whether only the version is new (an unacknowledged renewal, somebody's label)."""
        try:
            self._lease = await self._client.get(self._path, timeout=self._call_limit)
        except NotFoundError:
            return False
        except KubeError:
            return True
        return bool(self._lease["spec"].get("holderIdentity") == self.identity)

    async def _release(self) -> None:
        if not self._may_hold:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = await self._client.get(self._path)
                if lease["spec"].get("holderIdentity") == self.identity:
                    spec = lease["spec"] | self._build_term() | {"holderIdentity": None, "leaseDurationSeconds": 1}
                    await self._client.replace(self._path, lease | {"spec": spec})
            self._may_hold = False
        except (KubeError, TimeoutError) as error:
            log.warning("leader.release_failed", extra={"lease": self._name, "error": str(error)})

    @property
    def _path(self) -> str:
        return LEASES.item(self._name, self._namespace)

    @property
    def _call_limit(self) -> float:
        """Short enough for a second try on a fresh connection before the deadline."""
        return min(self._renew / 3, max(0.1, self.leadership.seconds_left))

    async def _create(self, lease: Json) -> Json:
        return await self._client.create(LEASES.collection(self._namespace), lease, timeout=self._retry)

    async def _replace(self, lease: Json) -> Json:
        limit = self._call_limit if self.leadership.is_leader else self._retry
        return await self._client.replace(self._path, lease, timeout=limit)

    def _build_term(self) -> Json:
        """The times are for people who read the Lease; nothing is decided by them."""
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._duration),
            "renewTime": format_micro_time(now_utc()),
        }


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel it and wait for its end. How it failed matters only to a leader, who has looked before."""
    task.cancel()
    ended, _ = await asyncio.wait({task}, timeout=STUCK_SECONDS)
    if not ended:
        # Somebody has swallowed the cancellation. Whoever starts this process again has a leader again.
        log.critical("leader.work_does_not_end")
        os._exit(STUCK)
    if not task.cancelled() and task.exception():
        log.debug("leader.work_failed", exc_info=task.exception())
