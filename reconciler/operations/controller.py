"""The operations controller: observe, plan, apply; and which changes concern which operation."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import key_of
from gpu_platform.kube.requests import ObjectClient
from reconciler.informers import World
from reconciler.operations.apply import RefusedError, apply_step, name_of
from reconciler.operations.observe import Observed, observe_operation
from reconciler.operations.plan import Plan, TrimRequest, plan_operation

log = logging.getLogger(__name__)


AT_ONCE = timedelta()

TRIM_INTERVAL = timedelta(milliseconds=20)
"""Between two requests that are dropped: after an upgrade thousands of old records wait for it, and must not delay
other operations."""


class TrimPace:
    """Hands out the times at which requests are dropped: one key per interval, in the order in which they came."""

    def __init__(self) -> None:
        self._times: dict[Key, datetime] = {}
        self._next: datetime | None = None

    def wait(self, key: Key, now: datetime) -> timedelta:
        """Returns how long this key has to wait; zero when it is its turn, which is then used up."""
        if key not in self._times:
            self._times[key] = max(now, self._next or now)
            self._next = self._times[key] + TRIM_INTERVAL
        left = self._times[key] - now
        if left > AT_ONCE:
            return left
        del self._times[key]
        return AT_ONCE

    def forget(self, key: Key) -> None:
        self._times.pop(key, None)


class OperationsController:
    name = "operations"

    def __init__(self, world: World, client: ObjectClient, now: Callable[[], datetime], *, takeover: timedelta) -> None:
        """`takeover`: how old an operation is when this controller finishes what the API did not."""
        self._world = world
        self._client = client
        self._now = now
        self._takeover = takeover
        self._trims = TrimPace()

    async def reconcile(self, namespace: str, name: str) -> Result:
        now = self._now()
        observed = await observe_operation(self._world, self._client, namespace, name, now, self._takeover)
        plan = plan_operation(observed, now, self._takeover) if observed is not None else None
        if plan is None or not isinstance(plan.step, TrimRequest):
            self._trims.forget((namespace, name))
        elif (wait := self._trims.wait((namespace, name), now)) > AT_ONCE:
            return RequeueAfter(wait, "other requests are dropped before")
        if observed is None or plan is None:
            return Done()
        plan = await self._take_step(plan, observed, now)
        if not plan.is_last:
            return RequeueAfter(AT_ONCE, "the next step")
        return RequeueAfter(plan.wait, plan.why) if plan.wait is not None else Done()

    def triggers(self) -> tuple[Trigger, ...]:
        world = self._world
        return (
            Trigger(world.operations, lambda operation: [key_of(operation)]),
            *(Trigger(cache, self._keys_of_object) for cache in world.accepted.values()),
        )

    async def _take_step(self, plan: Plan, observed: Observed, now: datetime) -> Plan:
        try:
            await self._apply(plan, observed)
        except RefusedError as refused:
            plan = plan_operation(replace(observed, refusal=str(refused)), now, self._takeover)
            await self._apply(plan, observed)
        return plan

    async def _apply(self, plan: Plan, observed: Observed) -> None:
        if plan.step is None:
            return
        record = observed.record
        await apply_step(plan.step, record, self._client, self._now())
        namespace, name = key_of(record.item)
        fields = {"namespace": namespace, "object": name, "operation": record.spec.operation_id}
        log.info("operation.step", extra=fields | {"step": name_of(plan.step), "why": plan.why})

    def _keys_of_object(self, item: Json) -> Iterable[Key]:
        return [key_of(operation) for operation in self._world.operations_of(item["metadata"]["uid"])]
