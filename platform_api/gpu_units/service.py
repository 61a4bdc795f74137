"""The service of units: reads and changes them (PUT, stop, start, restart, delete), and accepts new ones.

Reads are asked of the API server itself, so that a caller sees what any replica has just accepted. Every write is of
the unit as it was seen. One service is made per process: the claims under way are shared by all requests.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address

from gpu_platform.api_models.events import EventView
from gpu_platform.api_models.units import AddressView
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import (
    ACCEPT_SECONDS,
    RETENTION,
    OperationKind,
    OperationPhase,
    start_operation_name,
)
from gpu_platform.domain.ssh import MOST_SPARE, exchange_token, read_spare_tokens, token_of, with_spare_tokens
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.stock import Claim, is_from
from gpu_platform.domain.units import (
    GPUUnitSpec,
    UnitChange,
    build_started,
    merge_change,
    with_accepted_spec,
    with_token_hash,
)
from gpu_platform.kube import ConflictError, NotFoundError
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import (
    delete_on_record,
    finish_operation,
    open_operation,
    remove_operation,
)
from gpu_platform.store.ssh_tokens import ensure_token_secret
from gpu_platform.store.unit_acquisition import (
    find_unit,
    mounted_storages,
    release_claim,
    replace_mounting_unit,
    replace_unit,
)
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.gpu_units.acceptance import (
    Acceptance,
    StockClaimer,
    TokenDigests,
    check_mounts,
    mounts_refused_in_words,
)
from platform_api.gpu_units.views import UnitTargets, view_unit
from platform_api.http.bodies import etag_of
from platform_api.http.errors import conflict, in_progress, no_capacity
from platform_api.metrics import ApiMetrics
from platform_api.objects.idempotent_create import build_act, target_of
from platform_api.objects.optimistic_update import (
    TRIES,
    changed_by_others,
    check_match,
    is_worker,
    refuse_leaving,
    refuse_worker,
)
from platform_api.objects.reads import by_uid, read_events, read_pods
from platform_api.objects.service import ObjectService
from platform_api.objects.tenant_limits import ObjectLimits
from platform_api.proxy.pod_address import Simulated
from platform_api.stacks.previews import ActivePreviews, PreviewService

Change = Callable[[GPUUnitSpec], GPUUnitSpec]
Preparation = Callable[[Json, GPUUnitSpec], Awaitable["Prepared"]]


@dataclass(frozen=True)
class Prepared:
    """What a changed unit needs is there."""

    unit: Json
    """As it is by now."""

    spec: GPUUnitSpec
    """Names what was made."""

    was_missing: bool


class UnitService(ObjectService):
    path = GPU_UNITS
    what = "unit"

    def __init__(
        self,
        cluster: Cluster,
        limits: ObjectLimits,
        metrics: ApiMetrics,
        now: Callable[[], datetime],
        *,
        development_addresses: bool,
    ) -> None:
        super().__init__(cluster, limits, now)
        self._claimer = StockClaimer(cluster, metrics, now)
        self._digests = TokenDigests()
        self.acceptance = Acceptance(cluster, limits, self._claimer, self._digests, now)
        self.targets = UnitTargets(cluster, development_addresses=development_addresses)
        self.previews = PreviewService(cluster.client, ActivePreviews(cluster.operations, now), limits)

    async def events(self, caller: Caller, name: str) -> list[EventView]:
        """Of the unit and of its pods, oldest first."""
        unit = await self.get(caller, name)
        regarding = [unit, *await self.pods_of(unit)]
        return await read_events(self.client, caller.namespace, map(by_uid, regarding))

    async def pods_of(self, unit: Json) -> list[Json]:
        """Newest first."""
        metadata = unit["metadata"]
        return await read_pods(self.client, metadata["namespace"], f"{names.LABEL_UNIT_UID}={metadata['uid']}")

    async def get_newest_pod(self, caller: Caller, name: str) -> Json:
        """409 while there is none."""
        unit = await self.get(caller, name)
        pods = await self.pods_of(unit)
        if not pods:
            phase = (unit.get("status") or {}).get("phase") or "Pending"
            raise conflict(f"the unit {name!r} has no logs: it is {phase} and has no pod; see its events")
        return pods[0]

    async def address(self, caller: Caller, name: str, root: str) -> AddressView:
        """`root` is where the caller reaches this API."""
        unit = await self.get(caller, name)
        view = view_unit(unit)
        if view.access_url is None:
            why = "it has no ports" if not view.template.ports else f"it is {view.phase}: {view.message or view.reason}"
            raise conflict(f"the unit {name!r} has no address: {why}")
        address = self.targets.find_address(unit)
        if address is None:
            raise conflict(f"the unit {name!r} has no address: no pod of it is ready; see its events")
        if isinstance(address, Simulated):
            raise conflict(f"the unit {name!r} has no address that answers: it {address.why}")
        path = self.targets.find_proxy_path(unit)
        proxy_url = f"{root}{path}" if path else None
        if not ip_address(address).is_loopback:
            return AddressView(url=view.access_url, reach="cluster", proxy_url=proxy_url, public_url=view.public_url)
        # A pod of the development host node: this is where it really listens.
        scheme, _, place = view.access_url.partition("://")
        url = f"{scheme}://{address}:{place.rpartition(':')[2]}"
        return AddressView(url=url, reach="host", proxy_url=proxy_url, public_url=view.public_url)

    async def update(self, caller: Caller, name: str, change: UnitChange, if_match: str | None) -> Json:
        said = token_of(change.ssh)

        async def keep_token(unit: Json, after: GPUUnitSpec) -> Prepared:
            """Also when nothing changes: a caller who sends the token again may do so because it was lost. A Secret
            without a request that needs it is only found again if it is listed first."""
            if said is None:
                return Prepared(unit, after, was_missing=False)
            mounts = (mount.name for mount in after.storage_mounts if mount.name not in mounted_storages(unit))
            await check_mounts(self.client, caller.namespace, name, mounts)
            known = (unit["spec"].get("ssh") or {}).get("tokenHash")
            token = await self._digests.find(caller.namespace, name, said, known)
            if token.digest != known:
                unit = await self._list_token(unit, token.digest)
                pass_point("api.token-listed")
            is_new = await ensure_token_secret(self.client, name, token, unit)
            pass_point("api.token-kept")
            return Prepared(unit, with_token_hash(after, token.digest), is_new)

        return await self._change_spec(caller, name, lambda spec: merge_change(spec, change), if_match, keep_token)

    async def stop(self, caller: Caller, name: str) -> Json:
        return await self._change_spec(caller, name, lambda spec: spec.model_copy(update={"running": False}))

    async def restart(self, caller: Caller, name: str) -> Json:
        def count_up(spec: GPUUnitSpec) -> GPUUnitSpec:
            if not spec.running:
                raise conflict(f"the unit {name!r} is stopped; start it instead")
            return spec.model_copy(update={"restarts": spec.restarts + 1})

        return await self._change_spec(caller, name, count_up)

    async def delete(self, caller: Caller, name: str, if_match: str | None) -> None:
        seen = await self._get_own(caller, name)
        check_match(seen, self.what, if_match)

        async def record(unit: Json) -> None:
            if is_worker(unit):
                # Its function makes another one: there is nothing to remember, and no end of such deletions.
                return
            await self._record_deletion(caller, unit)
            pass_point("api.delete-recorded")

        await delete_on_record(self.client, self.path, seen, record)

    async def start(self, caller: Caller, name: str) -> Json:
        """Claims stock again; recorded and recovered like the creation of a unit."""
        for _ in range(TRIES):
            unit = await self._get_changeable(caller, name)
            if unit["spec"].get("running", True):
                return unit
            refuse_leaving(unit, "unit")
            try:
                async with asyncio.timeout(ACCEPT_SECONDS):
                    started = await self._try_start(caller, unit)
            except TimeoutError:
                raise in_progress("Kubernetes is slow: the start is finished in the background; ask again") from None
            if started is not None:
                return started
        raise changed_by_others("unit", name)

    async def _try_start(self, caller: Caller, unit: Json) -> Json | None:
        """None: the unit is no longer what it was, look again."""
        metadata = unit["metadata"]
        started_by = start_operation_name(caller.tenant, metadata["uid"], metadata["generation"])
        # With the generation: a unit that was changed since is not started by a late recovery.
        request = {"generation": metadata["generation"]}
        wanted = build_act(
            caller, started_by, OperationKind.START_UNIT, target_of("GPUUnit", unit), request, name=started_by
        )
        try:
            replay = await self._limits.find_replay(caller, wanted)
            opened = replay or await open_operation(self.client, wanted)
        except (ConflictError, NotFoundError):
            # Other tries came to nothing and were removed while we looked at them.
            return None
        if not opened.is_new:
            await self.acceptance.ends.wait(opened.operation)
            return None
        pass_point("api.start-recorded")
        claim = Claim(names.claim_holder(metadata["namespace"], metadata["name"]), started_by)
        stock = await self._claimer.claim(unit["spec"]["specName"], claim, None)
        if stock is None:
            await remove_operation(self.client, opened.operation)
            raise no_capacity(f"there is no free stock of {unit['spec']['specName']!r} just now; try again later")
        pass_point("api.start-claimed")
        started = await self._replace_started(unit, stock)
        if started is None:
            await release_claim(self.client, stock, claim)
            await remove_operation(self.client, opened.operation)
            return None
        pass_point("api.started")
        now = self._now()
        try:
            await finish_operation(
                self.client,
                opened.operation,
                OperationPhase.SUCCEEDED,
                now,
                target_uid=metadata["uid"],
                expires_at=now + RETENTION,
            )
        except (ConflictError, NotFoundError):
            # The operations controller saw the unit running and marked it.
            return started
        return started

    async def _replace_started(self, unit: Json, stock: Json) -> Json | None:
        """None: its spec is another one by now, or it is gone."""
        current: Json | None = unit
        for _ in range(TRIES):
            if current is not None and current["spec"].get("running", True) and is_from(current, stock):
                # Our own write whose answer was lost, or the operations controller's.
                return current
            if current is None or etag_of(current) != etag_of(unit):
                return None
            try:
                return await replace_unit(self.client, build_started(current, stock))
            except (ConflictError, NotFoundError):
                found = await find_unit(self.client, unit["metadata"]["namespace"], unit["metadata"]["name"])
                current = as_accepted(found) if found is not None else None
        return None

    async def _change_spec(
        self,
        caller: Caller,
        name: str,
        change: Change,
        if_match: str | None = None,
        prepare: Preparation | None = None,
    ) -> Json:
        """`prepare` makes what the changed unit needs, for the unit as it is."""
        was_missing = False

        async def write(unit: Json) -> Json:
            nonlocal was_missing
            before = GPUUnitSpec.model_validate(unit["spec"])
            after = change(before)
            if prepare is not None:
                prepared = await prepare(unit, after)
                unit, after = prepared.unit, prepared.spec
                was_missing |= prepared.was_missing
            if was_missing and before.ssh is not None and after.ssh == before.ssh and after.running:
                # What runs has begun without it, and reads it only once.
                after = after.model_copy(update={"restarts": after.restarts + 1})
            if after == before:
                return unit
            now = self._now()
            changed = exchange_token(with_accepted_spec(unit, after), _digest_of(before), _digest_of(after), now)
            with mounts_refused_in_words():
                return await replace_mounting_unit(self.client, unit, changed, now)

        return await self._change(caller, name, if_match, write)

    async def _list_token(self, unit: Json, digest: str) -> Json:
        """Returns the unit that lists the token whose Secret is about to be made."""
        name, now = unit["metadata"]["name"], self._now()
        tokens = read_spare_tokens(unit, now)
        is_marked = tokens.get(digest, now) is None
        if is_marked or len(tokens.keys() - {digest}) >= MOST_SPARE:
            raise in_progress(f"earlier tokens of the unit {name!r} are still being deleted; try again")
        return as_accepted(await replace_unit(self.client, with_spare_tokens(unit, {**tokens, digest: now})))

    async def _get_changeable(self, caller: Caller, name: str) -> Json:
        """Unlike a deletion: a function makes another worker."""
        unit = await super()._get_changeable(caller, name)
        refuse_worker(unit)
        return unit


def _digest_of(spec: GPUUnitSpec) -> str | None:
    return spec.ssh.token_hash if spec.ssh is not None else None
