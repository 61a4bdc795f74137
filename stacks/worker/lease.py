"""Holding a stack's Lease while Pulumi runs: renewed at a third of its life, and known to be lost when it is."""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import Intent, Recorded, StackAddress, StackRecord
from gpu_platform.kube.errors import ConflictError, KubeError, NotFoundError
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.store.stack_leases import Holder, holder_of, is_dead, parse_holder, renew_lease
from stacks.runner import Fault, StackFailedError, StackRunner, UpResult

log = logging.getLogger(__name__)

T = TypeVar("T")


class Held:
    """A Lease that is held. What is written through it is of the Lease as it was last seen by its holder."""

    def __init__(self, lease: Json, on_loss: Callable[[], None]) -> None:
        self.lease = lease
        self.is_lost = False
        self.renewal: asyncio.Task[Json] | None = None
        """Under way, or the last one."""

        self._on_loss = on_loss

    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._on_loss()


@asynccontextmanager
async def renewed(
    client: ObjectClient, lease: Json, seconds: float, now: Callable[[], datetime], on_loss: Callable[[], None]
) -> AsyncIterator[Held]:
    """Renew it while the block runs. `on_loss` is called as soon as somebody else may have it."""
    held = Held(lease, on_loss)
    task = asyncio.create_task(_keep(client, held, seconds, now))
    try:
        yield held
    finally:
        task.cancel()
        await asyncio.wait({task})
        if held.renewal is not None:
            # It may arrive all the same, and then the Lease is no longer as we saw it.
            with suppress(KubeError):
                held.lease = await held.renewal


async def _keep(client: ObjectClient, held: Held, seconds: float, now: Callable[[], datetime]) -> None:
    sent_at = time.monotonic()
    while not held.is_lost:
        await asyncio.sleep(seconds / 3)
        asked_at = time.monotonic()
        try:
            held.renewal = asyncio.create_task(renew_lease(client, held.lease, now()))
            async with asyncio.timeout(seconds / 3):
                held.lease = await asyncio.shield(held.renewal)
            sent_at = asked_at
        except (ConflictError, NotFoundError):
            log.warning("lease.superseded", extra={"lease": held.lease["metadata"]["name"]})
            held.lose()
        except (KubeError, TimeoutError) as error:
            log.warning("lease.not_renewed", extra={"lease": held.lease["metadata"]["name"], "error": str(error)})
            # Others count its life from when they saw the last renewal, which is later than we sent it.
            if time.monotonic() - sent_at > seconds:
                held.lose()


class Terms:
    """When another worker's Lease is over: counted on our own clock, from when we first saw it as it is."""

    def __init__(self, own: Holder, clock: Callable[[], float] = time.monotonic) -> None:
        self._own = own
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def seconds_left(self, lease: Json | None) -> float:
        """Before it may be taken; 0 for one that nobody holds, or whose holder is provably dead."""
        if lease is None:
            return 0.0
        holder = holder_of(lease)
        name = lease["metadata"]["name"]
        if not holder or holder == self._own.identity or is_dead(holder, self._own):
            self._seen.pop(name, None)
            return 0.0
        version = lease["metadata"]["resourceVersion"]
        if self._seen.get(name, ("", 0.0))[0] != version:
            self._seen[name] = version, self._clock()
        life = float(lease["spec"].get("leaseDurationSeconds") or 0)
        return max(0.0, life - (self._clock() - self._seen[name][1]))

    def forget(self, name: str) -> None:
        """Nothing is to be done about it any more."""
        self._seen.pop(name, None)


def clear_away(runner: StackRunner, address: StackAddress, holder: str) -> None:
    """What the last holder left behind: a process of its, a lock of that process."""
    if end_processes_of(holder, address.stack):
        log.warning("stack.holder_ended", extra={"stack": address.lease, "holder": holder})
    runner.heal_lock(address, lease_expired=False)


def build_record(intent: Intent, result: UpResult, now: datetime, uid: str | None = None) -> StackRecord:
    """What the index says of a stack after this run. Without a uid, the intent names the object."""
    recorded = Recorded(
        accepted_spec=intent.accepted_spec,
        operation_id=intent.operation_id,
        request_hash=intent.request_hash,
        at=now,
        resources=result.resources,
        outputs=result.outputs,
    )
    return StackRecord(intent.address, uid=uid or intent.uid, recorded=recorded)


def healing(run: Callable[[], T], heal: Callable[[StackFailedError], bool]) -> T:
    """Once more, when the stack was locked and `heal` has freed it."""
    try:
        return run()
    except StackFailedError as error:
        if error.fault is not Fault.LOCKED or not heal(error):
            raise
    return run()


def end_processes_of(holder: str, stack: str) -> int:
    """End what a holder whose Lease is over still runs for this stack on this host: it may be stopped, and its child
    then waits for it with the stack locked. How many there were."""
    stale = parse_holder(holder)
    if stale is None or stale.host != socket.gethostname() or stale.pid == os.getpid():
        # With our own pid, as in a container that was restarted, it is dead, and the children are ours.
        return 0
    ended = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if parent == stale.pid and stack in arguments:
                os.kill(int(process.name), signal.SIGKILL)
                ended += 1
        except (OSError, ValueError):
            continue
    return ended
