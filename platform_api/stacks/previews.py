"""Previews: what Pulumi would change. An Operation and nothing else: the API records it, a stack worker runs it.

Those that wait or run are counted: those of every API process by the cache, and those of this process before the cache
has them.
"""

import asyncio
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote
from weakref import WeakValueDictionary

from gpu_platform.api_models.stacks import PreviewView
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind, OperationPhase, operation_name
from gpu_platform.kube import NotFoundError
from gpu_platform.kube.informer import ObjectCache
from gpu_platform.kube.paths import OPERATIONS
from gpu_platform.kube.requests import find
from gpu_platform.store.ledger import is_final, open_operation, spec_of, status_of
from platform_api.auth.keys import Caller
from platform_api.cluster import ACTIVE_BY_NAMESPACE, ACTIVE_BY_UNIT, object_key
from platform_api.http.errors import ApiError, conflict, not_found, too_many, unavailable
from platform_api.kube_health import BoundedClient
from platform_api.objects.idempotent_create import Accepted, build_act, check_replay, target_of
from platform_api.objects.optimistic_update import refuse_leaving
from platform_api.objects.tenant_limits import ObjectLimits
from platform_api.stacks.service import get_intent, view_preview

Place = tuple[str, str]
"""Namespace and name."""

RETRY_SECONDS = 2
"""About as long as a preview runs."""

UNSEEN = timedelta(seconds=60)
"""How long a preview counts that the cache has not shown. One that is this late was missed: recorded and deleted while
the watch was interrupted."""


@dataclass(frozen=True)
class _Reservation:
    uid: str
    """Of the unit."""

    until: datetime


class ActivePreviews:
    def __init__(self, cache: ObjectCache, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._now = now
        self._reserved: dict[Place, _Reservation] = {}
        cache.on_change(self._take_change)

    @property
    def is_known(self) -> bool:
        return self._cache.is_synced

    def names_of_unit(self, namespace: str, uid: str) -> list[str]:
        """Returns the names of the Operations, oldest first where the cache has them."""
        shown = self._cache.by_index(ACTIVE_BY_UNIT, object_key(namespace, uid))
        ordered = sorted(shown, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
        reserved = (name for (place, name), each in self._list_reserved() if place == namespace and each.uid == uid)
        return list(dict.fromkeys([*(each["metadata"]["name"] for each in ordered), *reserved]))

    def count(self, namespace: str, ended: Collection[str]) -> int:
        """Returns how many a tenant has, without those that have ended though the cache does not show it yet."""
        shown = (each["metadata"]["name"] for each in self._cache.by_index(ACTIVE_BY_NAMESPACE, namespace))
        reserved = (name for (place, name), _ in self._list_reserved() if place == namespace)
        return len({*shown, *reserved}.difference(ended))

    def reserve(self, operation: Json) -> None:
        """Counts a preview that is about to be recorded, until the cache shows it."""
        uid = operation["spec"]["target"]["uid"]
        self._reserved[_place_of(operation)] = _Reservation(uid, self._now() + UNSEEN)

    def release(self, operation: Json) -> None:
        """Ends the reservation of a preview that was not recorded."""
        self._reserved.pop(_place_of(operation), None)

    def _list_reserved(self) -> list[tuple[Place, _Reservation]]:
        now = self._now()
        self._reserved = {place: each for place, each in self._reserved.items() if each.until > now}
        return list(self._reserved.items())

    def _take_change(self, old: Json | None, new: Json | None) -> None:
        for each in (old, new):
            if each is not None:
                self.release(each)


class PreviewService:
    def __init__(self, client: BoundedClient, active: ActivePreviews, limits: ObjectLimits) -> None:
        self._client = client
        self._limits = limits
        self._active = active
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def accept(self, caller: Caller, unit: Json, operation_id: str | None, limit: int) -> Accepted[PreviewView]:
        """
        | operationID   | the unit's preview                 | the tenant's previews | answer                         |
        | ------------- | ---------------------------------- | --------------------- | ------------------------------ |
        | used          | this one, also when it has ended   | any                   | that one as it is now          |
        | used          | of another unit, or another request | any                  | 409                            |
        | not sent      | waits, or runs and `is_shared`     | any                   | that one as it is now          |
        | not sent      | runs and is not                    | any                   | 409 that names it              |
        | new           | waits or runs                      | any                   | 409 that names it              |
        | not sent, new | none, or has ended                 | any, and as many operations as the limit | 403         |
        | not sent, new | none, or has ended                 | as many as the limit  | 429                            |
        | not sent, new | none, or has ended                 | fewer                 | recorded: a pending preview    |
        """
        get_intent(unit, "unit")
        refuse_leaving(unit, "unit")
        wanted = build_preview(caller, unit, operation_id or f"preview-{secrets.token_hex(8)}")
        if not self._active.is_known:
            raise unavailable("the previews that wait or run could not be listed yet; try again")
        key = object_key(caller.namespace, unit["metadata"]["uid"])
        # Held while an earlier request for this unit is recorded, which neither the cache nor the API server shows yet.
        async with self._locks.setdefault(key, asyncio.Lock()):
            replayed = await self._find(wanted) if operation_id is not None else None
            if replayed is not None:
                check_replay(replayed, wanted)
                return Accepted(view_preview(replayed), is_new=False)
            running, ended = await self._find_running(caller, unit)
            if running is None:
                return await self._record(caller, wanted, ended, limit)
            if operation_id is None and is_shared(running, unit):
                return Accepted(view_preview(running), is_new=False)
            raise _already_running(running)

    async def get(self, caller: Caller, unit_name: str, operation_id: str) -> PreviewView:
        operation = await find(self._client, OPERATIONS, operation_name(caller.tenant, operation_id), caller.namespace)
        if operation is not None:
            spec = spec_of(operation)
            if spec.kind is OperationKind.PREVIEW_UNIT and spec.target.name == unit_name:
                return view_preview(operation)
        raise not_found(
            "preview_not_found",
            f"there is no preview of the unit {unit_name!r} with the operationID {operation_id!r}; "
            "they are kept for an hour",
        )

    async def _find(self, operation: Json) -> Json | None:
        return await find(self._client, OPERATIONS, operation["metadata"]["name"], operation["metadata"]["namespace"])

    async def _find_running(self, caller: Caller, unit: Json) -> tuple[Json | None, list[str]]:
        """Returns the unit's preview that waits or runs, and those that the cache wrongly shows as such. Asked of the
        API server: a caller who has seen the end of one may ask for the next."""
        ended: list[str] = []
        for name in self._active.names_of_unit(caller.namespace, unit["metadata"]["uid"]):
            operation = await find(self._client, OPERATIONS, name, caller.namespace)
            if operation is not None and not is_final(operation):
                return operation, ended
            ended.append(name)
        return None, ended

    async def _record(self, caller: Caller, wanted: Json, ended: list[str], limit: int) -> Accepted[PreviewView]:
        self._limits.check(caller, OperationKind.PREVIEW_UNIT)
        # Nothing is awaited between the count and the reservation: requests at the same time cannot pass the limit.
        if self._active.count(caller.namespace, ended) >= limit:
            raise too_many(
                f"the tenant has {limit} previews that wait or run, which is its limit (tenantLimits.previews); "
                "try again when one of them has ended",
                RETRY_SECONDS,
            )
        self._active.reserve(wanted)
        is_new = False
        try:
            opened = await open_operation(self._client, wanted)
            is_new = opened.is_new
        except NotFoundError as error:
            # The namespace is being deleted, or the record of an hour ago was removed between two requests.
            raise unavailable("the preview could not be recorded; try again") from error
        finally:
            if not is_new:
                self._active.release(wanted)
        check_replay(opened.operation, wanted)
        return Accepted(view_preview(opened.operation), opened.is_new)


def build_preview(caller: Caller, unit: Json, operation_id: str) -> Json:
    asked = {"generation": unit["metadata"]["generation"]}
    return build_act(caller, operation_id, OperationKind.PREVIEW_UNIT, target_of("GPUUnit", unit), asked)


def is_shared(running: Json, unit: Json) -> bool:
    """Returns whether a preview that waits or runs also answers who asks now, about the unit as it is now.

    | preview                                              | shared                             |
    | ---------------------------------------------------- | ---------------------------------- |
    | waits                                                | yes: it reads the unit when it begins |
    | runs; the unit's generation is that of its request   | yes: the unit was not changed since |
    | runs; another generation, or none (earlier release)  | no: it may have read the unit before |
    """
    if status_of(running).phase is not OperationPhase.RUNNING:
        return True
    return bool(spec_of(running).request.get("generation") == unit["metadata"]["generation"])


def _already_running(running: Json) -> ApiError:
    spec, phase = spec_of(running), status_of(running).phase or OperationPhase.PENDING
    path = f"/api/v1/gpu-units/{spec.target.name}/previews/{quote(spec.operation_id, safe='')}"
    return conflict(
        f"a preview of the unit {spec.target.name!r} is {phase}, with the operationID {spec.operation_id!r}; "
        f"GET {path} shows it; ask for another when it has ended"
    )


def _place_of(operation: Json) -> Place:
    return operation["metadata"]["namespace"], operation["metadata"]["name"]
