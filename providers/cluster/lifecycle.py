"""Create, Read, Update and Delete of one object, on decoded values; what the wire looks like is `servicer`'s business.

Objects are never applied: created by POST, changed by PUT as they were seen, deleted by their uid. A unit takes free
stock and holds the storages that it mounts before it is written.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import RELEASE_SECONDS, Holder, HolderKind, hold_of
from gpu_platform.domain.operations import OPERATORS, delete_operation_name, operation_name
from gpu_platform.domain.stock import Claim, rank_stock
from gpu_platform.domain.tenants import tenant_of
from gpu_platform.domain.units import GPUUnitSpec, build_started
from gpu_platform.kube import AlreadyExistsError, ConflictError, KubeClient, KubeError, NotFoundError
from gpu_platform.kube.paths import GPU_STORAGES, GPU_UNITS, OPERATIONS
from gpu_platform.kube.requests import delete_that, find
from gpu_platform.process import pass_point
from gpu_platform.pulumi_protocol.properties import Properties
from gpu_platform.pulumi_protocol.resource import (
    READY,
    Observed,
    Patience,
    Resource,
    ResourceFailedError,
    Verdict,
    describe,
    wait_until,
)
from gpu_platform.pulumi_protocol.serving import EngineLog
from gpu_platform.store.ledger import build_deletion, open_operation, settle_creation
from gpu_platform.store.storages import (
    StorageHeldError,
    StorageMissingError,
    delete_unused_storage,
    hold_storages,
)
from gpu_platform.store.unit_acquisition import (
    Taken,
    claim_first,
    given_back_unless_written,
    list_claims,
    list_free_stock,
    mounted_storages,
)
from providers.cluster.kinds import Kind, build_id, parse_id
from providers.cluster.objects import Wanted, build_changed, build_object, build_outputs, build_wanted, observe_object
from providers.cluster.plan import Keep, Make, Refuse, plan_create, plan_update

TRIES = 5
"""Against others who write the same object, mostly the reconciler its status."""

GONE_SECONDS = 60.0
"""For an object to go with its children, where the program says nothing else."""

UNMOUNTED_SECONDS = 30.0
"""For a live unit to release a storage that is to be deleted: Pulumi may be about to delete the unit, too."""


@dataclass(frozen=True)
class Session:
    log: EngineLog
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


async def claim_stock(client: KubeClient, wanted: Wanted, now: datetime) -> Json | None:
    """What a try that died has claimed for it, else the oldest that is free; None when there is none to be had, or none
    is needed."""
    if not isinstance(wanted.spec, GPUUnitSpec) or not wanted.spec.running:
        return None
    spec_name = wanted.spec.spec_name
    held = [
        stock
        for stock in await list_claims(client, claim_for(wanted))
        if stock["spec"].get("specName") == spec_name and "deletionTimestamp" not in stock["metadata"]
    ]
    free = rank_stock(await list_free_stock(client, spec_name), spec_name)
    return await claim_first(client, (*held, *free), claim_for(wanted), now)


def claim_mark(wanted: Wanted) -> str:
    """In the place of an Operation's name, and never one: the request that first made this unit has ended, and a claim
    for what has ended is released at once. One that names no Operation has a minute, in which the unit is made; if this
    process dies before, the stock is free again after that (reconciler/orphans/plan.py)."""
    return f"provider-{operation_name(wanted.tenant, wanted.operation_id)}"


def claim_for(wanted: Wanted) -> Claim:
    return Claim(names.claim_holder(wanted.namespace or "", wanted.name), claim_mark(wanted))


async def hold_mounts(client: KubeClient, wanted: Wanted, live: Json | None, now: datetime) -> tuple[Json, ...]:
    """What it mounts, and what is there mounts not yet. ResourceFailedError: one of them is not to be had."""
    if not isinstance(wanted.spec, GPUUnitSpec) or wanted.namespace is None:
        return ()
    mounted = mounted_storages(live) if live is not None else set()
    added = {mount.name for mount in wanted.spec.storage_mounts} - mounted
    try:
        return await hold_storages(client, wanted.namespace, wanted.name, added, now)
    except StorageMissingError as error:
        raise ResourceFailedError(f"{wanted.label} mounts the storage {error.name!r}, which does not exist") from error
    except StorageHeldError as error:
        raise ResourceFailedError(
            f"{wanted.label} mounts the storage {error.name!r}, which {error.holder} uses; one at a time may have it"
        ) from error


class Lifecycle:
    """Of objects of one kind, for one engine."""

    def __init__(self, client: KubeClient, kind: Kind, session: Session, now: Callable[[], datetime]) -> None:
        self._client = client
        self._kind = kind
        self._session = session
        self._now = now

    async def create(self, resource: Resource, inputs: Properties) -> tuple[str, Properties]:
        wanted = build_wanted(self._kind, resource, inputs.tree)
        live = await self._make_or_adopt(resource, wanted)
        return build_id(wanted.namespace, wanted.name), build_outputs(self._kind, live, inputs)

    async def read(self, object_id: str, inputs: Properties, uid: Any) -> Observed | None:
        """The object as it is now; None if it is gone, though another one may have its name by now. An import has no
        inputs and no uid yet."""
        namespace, name = parse_id(self._kind, object_id)
        live = await self._find(namespace, name)
        if live is None or (uid and live["metadata"]["uid"] != uid):
            return None
        try:
            return observe_object(self._kind, live, inputs)
        except ValidationError as error:
            raise ResourceFailedError(f"{self._label(namespace, name)} cannot be read: {error}") from error

    async def update(self, resource: Resource, outputs: Json, inputs: Properties) -> Properties:
        wanted = build_wanted(self._kind, resource, inputs.tree)
        uid, recorded = str(outputs.get("uid", "")), str(outputs.get("acceptedHash", ""))
        for _ in range(TRIES):
            match plan_update(wanted, await self._find(wanted.namespace, wanted.name), uid, recorded):
                case Refuse(reason):
                    raise ResourceFailedError(reason)
                case Keep(live):
                    return build_outputs(self._kind, live, inputs)
                case change:
                    changed = await self._change(resource, wanted, change.live)
            if changed is not None:
                return build_outputs(self._kind, changed, inputs)
        raise ResourceFailedError(f"{wanted.label} is being changed by somebody else all the time; try again")

    async def delete(self, resource: Resource, object_id: str, outputs: Json) -> None:
        namespace, name = parse_id(self._kind, object_id)
        uid = outputs.get("uid")
        for tries_left in reversed(range(TRIES)):
            if self._kind.path == GPU_STORAGES:
                await self._wait_until_unmounted(resource, namespace, name, uid)
            live = await self._find(namespace, name)
            if live is None or live["metadata"]["uid"] != uid:
                return
            with self._described(namespace, name):
                try:
                    await self._delete_on_record(live)
                except StorageHeldError as error:
                    # Taken since it was looked at: its release is waited for as well.
                    if not tries_left:
                        raise ResourceFailedError(f"{self._label(namespace, name)} is not deleted: {error}") from error
                    continue
                except (NotFoundError, ConflictError):
                    # Gone, and perhaps another one has its name by now. That one was not meant.
                    return
            await self._wait_until_gone(resource, live)
            return

    async def _make_or_adopt(self, resource: Resource, wanted: Wanted) -> Json:
        for _ in range(TRIES):
            match plan_create(wanted, await self._find(wanted.namespace, wanted.name)):
                case Refuse(reason):
                    raise ResourceFailedError(reason)
                case Keep(live):
                    return live
                case Make():
                    made = await self._make(resource, wanted)
            if made is not None:
                return made
        raise ResourceFailedError(f"{wanted.label} is made and deleted by somebody else all the time; try again")

    async def _make(self, resource: Resource, wanted: Wanted) -> Json | None:
        """None: somebody was faster, look again."""
        if await self._is_ended(wanted):
            raise _ended(wanted)
        taken = await self._take(resource, wanted, None)
        pass_point("provider.stock-claimed")
        with self._described(wanted.namespace, wanted.name):
            try:
                async with given_back_unless_written(self._client, taken):
                    path = self._kind.path.collection(wanted.namespace)
                    made = await self._client.create(path, build_object(wanted, taken.stock))
            except AlreadyExistsError:
                return None
        # Whoever asks for its end writes that down and looks then, as it is made and looked here: one sees the other.
        if await self._is_ended(wanted):
            with suppress(NotFoundError, ConflictError, StorageHeldError):
                # On record: a cache that has seen it must not be a reason to make it once more.
                await self._delete_on_record(made)
            raise _ended(wanted)
        return made

    async def _is_ended(self, wanted: Wanted) -> bool:
        """Whether somebody asked for the end of the one that was there last."""
        if not wanted.object_uid or not self._kind.has_accepted_spec:
            return False
        name = delete_operation_name(self._ledger_tenant_of(wanted.namespace), wanted.object_uid)
        with self._described(wanted.namespace, wanted.name):
            return await find(self._client, OPERATIONS, name, wanted.namespace) is not None

    def _ledger_tenant_of(self, namespace: str | None) -> str:
        return (tenant_of(namespace or "") or "") if self._kind.is_of_tenant else OPERATORS

    async def _change(self, resource: Resource, wanted: Wanted, live: Json) -> Json | None:
        """None: it was written meanwhile, look again."""
        taken = await self._take(resource, wanted, live)
        body = build_changed(wanted, build_started(live, taken.stock) if taken.stock is not None else live)
        with self._described(wanted.namespace, wanted.name):
            try:
                async with given_back_unless_written(self._client, taken):
                    return await self._client.replace(self._kind.path.item(wanted.name, wanted.namespace), body)
            except (ConflictError, NotFoundError):
                return None

    async def _take(self, resource: Resource, wanted: Wanted, live: Json | None) -> Taken:
        """The storages first: without them there is no unit, without stock there is one that waits. A unit that runs
        already has its GPUs."""
        needs_stock = wanted.runs and (live is None or not live["spec"].get("running", True))
        with self._described(wanted.namespace, wanted.name):
            storages = await hold_mounts(self._client, wanted, live, self._now())
            stock = await claim_stock(self._client, wanted, self._now()) if needs_stock else None
        if needs_stock and stock is None:
            await self._session.log.warn(
                resource.urn,
                f"there is no free stock for {wanted.label}: it is made without, and runs once its GPUs are free",
            )
        return Taken(stock, claim_for(wanted), storages)

    async def _delete_on_record(self, live: Json) -> None:
        """The wish is recorded first: from then on nobody puts the object back."""
        if self._kind.path == GPU_STORAGES:
            await delete_unused_storage(self._client, live, self._record_deletion)
            return
        if self._kind.has_accepted_spec:
            await self._record_deletion(live)
        await delete_that(self._client, self._kind.path, live["metadata"])

    async def _record_deletion(self, live: Json) -> Json:
        tenant = self._ledger_tenant_of(live["metadata"]["namespace"])
        if self._kind.is_of_tenant:
            await settle_creation(self._client, live, tenant, self._now())
        return (await open_operation(self._client, build_deletion(live, tenant))).operation

    async def _wait_until_unmounted(self, resource: Resource, namespace: str | None, name: str, uid: Any) -> None:
        clock = asyncio.get_running_loop().time
        hopeless_at = clock() + (resource.timeout_seconds or UNMOUNTED_SECONDS)

        async def look() -> Verdict:
            found = await self._find(namespace, name)
            hold = hold_of(found) if found is not None and found["metadata"]["uid"] == uid else None
            if hold is None:
                return READY
            if await self._needs(hold.holder, namespace, name):
                return Verdict(ready=False, reason=f"{hold.holder} uses it", hopeless=clock() > hopeless_at)
            return Verdict(ready=False, reason=f"{hold.holder} is about to release it")

        patience = self._patience(resource, RELEASE_SECONDS)
        await wait_until(look, patience, f"{self._label(namespace, name)} is in use", ResourceFailedError)

    async def _needs(self, holder: Holder, namespace: str | None, storage: str) -> bool:
        """Not a copy of the storage, which has an end, nor a unit that goes or has unmounted it."""
        if holder.kind is not HolderKind.UNIT:
            return False
        with self._described(namespace, storage):
            unit = await find(self._client, GPU_UNITS, holder.name, namespace)
        return unit is not None and "deletionTimestamp" not in unit["metadata"] and storage in mounted_storages(unit)

    async def _wait_until_gone(self, resource: Resource, live: Json) -> None:
        namespace, name, uid = (live["metadata"].get(key) for key in ("namespace", "name", "uid"))

        async def look() -> Verdict:
            found = await self._find(namespace, name)
            if found is None or found["metadata"]["uid"] != uid:
                return READY
            return Verdict(ready=False, reason="it goes when everything that belongs to it is gone")

        patience = self._patience(resource, GONE_SECONDS)
        await wait_until(look, patience, f"{self._label(namespace, name)} is not gone", ResourceFailedError)

    def _patience(self, resource: Resource, seconds: float) -> Patience:
        async def report(message: str) -> None:
            await self._session.log.show(resource.urn, message)

        return Patience(resource.timeout_seconds or seconds, report, self._session.cancelled)

    async def _find(self, namespace: str | None, name: str) -> Json | None:
        with self._described(namespace, name):
            return await find(self._client, self._kind.path, name, namespace)

    def _label(self, namespace: str | None, name: str) -> str:
        return f"{self._kind.name} {build_id(namespace, name)}"

    @contextmanager
    def _described(self, namespace: str | None, name: str) -> Iterator[None]:
        """Raises a KubeError of the block as a ResourceFailedError about this object."""
        try:
            yield
        except KubeError as error:
            message = describe(error, self._label(namespace, name), self._client.server)
            raise ResourceFailedError(message) from error


def _ended(wanted: Wanted) -> ResourceFailedError:
    return ResourceFailedError(f"{wanted.label} is not made again: its end was asked for")
