"""Acceptance of a request for a unit (`POST /api/v1/gpu-units`). The steps that claim stock, hold storages and create
the unit are those of `store/unit_acquisition`; around them the API records an Operation, and tells the caller why
a unit cannot be had.

| step | what                                                                  | when the process dies right after   |
| ---- | --------------------------------------------------------------------- | ----------------------------------- |
| 1    | check and hash the request, check the tenant's limits                 | nothing was written                 |
| 2    | record an Operation, named after tenant and operationID, if absent    | recovery removes it after 15 s      |
| 2a   | check catalogue, name and mounts; keep the FRP token in a Secret      | as 2; the Secret is deleted with it |
| 3–5  | acquire the unit; the stock is one that this process has not tried in | recovery creates the unit           |
|      | this version                                                          |                                     |
| 6    | mark the Operation succeeded, with the unit's uid                     | nothing is left to do               |
| undo | refused: release the claim, then remove the Operation                 | recovery does the rest              |
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from weakref import WeakValueDictionary

from gpu_platform.api_models.units import CreateUnit
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.mount_holds import HolderKind, hold_of, unit_holder
from gpu_platform.domain.operations import ACCEPT_SECONDS, OperationKind
from gpu_platform.domain.ssh import find_token_hash, hash_token_unsalted, token_of
from gpu_platform.domain.stock import Claim, is_from, rank_stock
from gpu_platform.domain.units import UnitRequest, build_unit, normalise_request, with_token_hash
from gpu_platform.kube import KubeError
from gpu_platform.kube.paths import GPU_STORAGES, GPU_UNITS, OPERATIONS
from gpu_platform.kube.requests import find
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import NameTakenError, remove_operation
from gpu_platform.store.ssh_tokens import UnitToken, ensure_token_secret
from gpu_platform.store.storages import StorageHeldError, StorageMissingError
from gpu_platform.store.unit_acquisition import (
    create_or_adopt_unit,
    find_unit,
    list_free_stock,
    release_claim,
    try_claim,
)
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError, invalid_field, no_capacity, not_found, storage_in_use
from platform_api.kube_health import BoundedClient
from platform_api.metrics import ApiMetrics
from platform_api.objects.idempotent_create import (
    BEGINNINGS,
    Accepted,
    OperationEnds,
    as_refusal,
    being_undone,
    build_creation,
    check_catalogue,
    finished_in_background,
    open_for_tenant,
    undone_meanwhile,
)
from platform_api.objects.tenant_limits import ObjectLimits

THREADS = 1
"""However many tokens are sent, their digests occupy at most one core. That is 100 to 200 tokens per second."""

TRIED_LIMIT = 10_000

LANES = 16
"""Acceptances that this process carries out at once. A crowd waits here, where waiting costs nothing, and not in calls
to Kubernetes, which have a time limit."""


async def check_mounts(client: BoundedClient, namespace: str, unit: str, storages: Iterable[str]) -> None:
    """It spares a claim that would have to be given back, and a Secret. Holding them is what decides."""
    with mounts_refused_in_words():
        for name in storages:
            storage = await find(client, GPU_STORAGES, name, namespace)
            if storage is None or "deletionTimestamp" in storage["metadata"]:
                raise StorageMissingError(name)
            hold = hold_of(storage)
            if hold is not None and hold.holder != unit_holder(unit):
                raise StorageHeldError(name, hold.holder)


@contextmanager
def mounts_refused_in_words() -> Iterator[None]:
    try:
        yield
    except StorageMissingError as error:
        raise not_found(
            "gpustorage_not_found", f"storageMounts: there is no storage {error.name!r}; create it first"
        ) from error
    except StorageHeldError as error:
        raise in_use_error(error) from error


def in_use_error(error: StorageHeldError) -> ApiError:
    name, holder = error.name, error.holder
    if holder.kind is HolderKind.UNIT:
        return storage_in_use(
            f"the storage {name!r} is mounted by the unit {holder.name!r}; one unit at a time may have it: unmount it "
            "there, or delete that unit"
        )
    return storage_in_use(f"the storage {name!r} is being copied into the storage {holder.name!r}; wait for its end")


class TokenDigests:
    """Computes one digest at a time for each tenant: many tokens of one tenant wait for each other, not in front of
    those of other tenants."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="token-digest")
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def find(self, namespace: str, unit: str, token: str, known: str | None = None) -> UnitToken:
        """Returns the token with its digest; `known` as in `find_token_hash`."""
        return UnitToken(token, await self._compute(namespace, partial(find_token_hash, token, namespace, unit, known)))

    async def find_unsalted(self, namespace: str, token: str) -> str:
        """Returns the digest of this tenant's token as earlier versions recorded it."""
        return await self._compute(namespace, partial(hash_token_unsalted, token))

    async def _compute(self, namespace: str, digest: Callable[[], str]) -> str:
        turn = self._turns.setdefault(namespace, asyncio.Lock())
        async with turn:
            return await asyncio.get_running_loop().run_in_executor(self._threads, digest)


class StockClaimer:
    def __init__(self, cluster: Cluster, metrics: ApiMetrics, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._now = now
        self._tried: dict[str, str] = {}
        """Uid and resourceVersion of stock that this process has tried: in that version it is no longer to be had,
        whatever the index, a few milliseconds behind, still says."""

    async def claim(self, spec_name: str, claim: Claim, stock_name: str | None) -> Json | None:
        """Claims one stock unit of the spec; None when none is free."""
        indexed = self._cluster.available_stock(spec_name)
        stock = await self._take(self._rank(indexed, spec_name, stock_name), claim)
        if stock is None:
            listed = await list_free_stock(self._cluster.client, spec_name)
            stock = await self._take(self._rank(listed, spec_name, stock_name), claim)
        self._metrics.count_claim("taken" if stock else "none")
        return stock

    def _rank(self, stock: Iterable[Json], spec_name: str, stock_name: str | None) -> tuple[Json, ...]:
        ranked = rank_stock(stock, spec_name)
        return tuple(each for each in ranked if stock_name is None or each["metadata"]["name"] == stock_name)

    async def _take(self, candidates: Iterable[Json], claim: Claim) -> Json | None:
        for stock in candidates:
            uid, version = stock["metadata"]["uid"], stock["metadata"]["resourceVersion"]
            if self._tried.get(uid) == version:
                continue
            self._remember(uid, version)
            try:
                taken = await try_claim(self._cluster.client, stock, claim, self._now())
            except KubeError:
                # Nobody knows whether it was taken. If it was not, it must be possible to try again.
                self._tried.pop(uid, None)
                raise
            if taken is not None:
                return taken
            self._metrics.count_claim("lost")
        return None

    def _remember(self, uid: str, version: str) -> None:
        if len(self._tried) >= TRIED_LIMIT:
            self._tried.clear()
        self._tried[uid] = version


class Acceptance:
    def __init__(
        self,
        cluster: Cluster,
        limits: ObjectLimits,
        claimer: StockClaimer,
        digests: TokenDigests,
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._limits = limits
        self._client = cluster.client
        self._claimer = claimer
        self._digests = digests
        self._now = now
        self.ends = OperationEnds(self._client)
        self._lanes = asyncio.Semaphore(LANES)

    async def accept(self, caller: Caller, body: CreateUnit) -> Accepted[Json]:
        _check_places(caller, body)
        request = normalise_request(body.to_request())
        said, token = token_of(body.ssh), None
        if said is not None:
            await self._check_before_digest(caller, _build_operation(caller, body, request), request.spec_name)
            token = await self._digests.find(caller.namespace, request.name, said)
            request = with_token_hash(request, token.digest)
        operation = _build_operation(caller, body, request)
        for _ in range(BEGINNINGS):
            async with self._lanes:
                replay = await self._limits.find_replay(caller, operation)
                opened = replay or await open_for_tenant(self._client, operation)
                if opened.is_new:
                    pass_point("api.operation-created")
                    unit = await self._carry_out(opened.operation, request, token)
                    return Accepted(unit, is_new=True)
            wanted = operation
            if token is not None and opened.operation["spec"]["requestHash"] != operation["spec"]["requestHash"]:
                # Perhaps the same token, recorded by an earlier version.
                earlier = await self._digests.find_unsalted(caller.namespace, token.token)
                wanted = _build_operation(caller, body, with_token_hash(request, earlier))
            if (made := await self.ends.find_made(opened.operation, wanted, GPU_UNITS, "unit")) is not None:
                return Accepted(made, is_new=False)
        raise being_undone(body.operation_id)

    async def _check_before_digest(self, caller: Caller, operation: Json, spec_name: str) -> None:
        """Refuses what would be refused after the token's digest, too, but for a replay: of one, only the digest shows
        whether it is the same request. `operation` has the name of the one to come; its hash lacks the token."""
        if await self._limits.find_replay(caller, operation) is not None:
            return
        try:
            await check_catalogue(self._cluster, spec_name)
        except ApiError:
            metadata = operation["metadata"]
            # The cache of operations may be behind, and a replay needs no spec.
            if await find(self._client, OPERATIONS, metadata["name"], metadata["namespace"]) is None:
                raise

    async def _carry_out(self, operation: Json, request: UnitRequest, token: UnitToken | None) -> Json:
        """Steps 2a to 6. What ends without a refusal and without the mark is for the operations controller."""
        stock: Json | None = None
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await check_catalogue(self._cluster, request.spec_name)
                await self._check_name(operation, request.name)
                mounts = (mount.name for mount in request.storage_mounts)
                await check_mounts(self._client, operation["metadata"]["namespace"], request.name, mounts)
                if token is not None:
                    # Before the claim: from there on the unit can come without this process, which alone knows it.
                    await ensure_token_secret(self._client, request.name, token, operation)
                    pass_point("api.token-kept")
                stock = await self._claim(operation, request)
                pass_point("api.stock-claimed")
                unit = await self._create(operation, request, stock)
                pass_point("api.unit-created")
        except TimeoutError:
            raise finished_in_background() from None
        except (ApiError, KubeError, NameTakenError) as error:
            refusal = as_refusal(error, "unit")
            if refusal is None:
                raise
            await self._undo(operation, stock)
            raise refusal from error
        if not await self.ends.mark_made(operation, GPU_UNITS, unit, self._now()):
            await self._release(operation, stock)
            raise undone_meanwhile()
        return unit

    async def _check_name(self, operation: Json, name: str) -> None:
        """From memory: it spares a claim that would have to be given back. Creating the unit is what decides."""
        unit = self._cluster.units.get(operation["metadata"]["namespace"], name)
        if unit is None or annotations_of(unit).get(names.ANNOTATION_OPERATION_ID) == operation["spec"]["operationID"]:
            return
        # It may have gone since.
        if await find_unit(self._client, operation["metadata"]["namespace"], name) is not None:
            raise NameTakenError(name)

    async def _claim(self, operation: Json, request: UnitRequest) -> Json:
        stock = await self._claimer.claim(request.spec_name, Claim.of_operation(operation), request.stock_name)
        if stock is None:
            which = f"the stock unit {request.stock_name!r}" if request.stock_name else "free stock"
            raise no_capacity(f"there is no {which} of {request.spec_name!r} just now; try again later")
        return stock

    async def _create(self, operation: Json, request: UnitRequest, stock: Json) -> Json:
        spec = operation["spec"]
        namespace = operation["metadata"]["namespace"]
        body = build_unit(request, namespace, stock, spec["operationID"], spec["requestHash"])
        with mounts_refused_in_words():
            unit = await create_or_adopt_unit(self._client, body, self._now())
        if not is_from(unit, stock):
            # An earlier try had claimed and created already.
            await self._release(operation, stock)
        return unit

    async def _undo(self, operation: Json, stock: Json | None) -> None:
        """Claim first: an operation that is gone would leave it to the janitor."""
        if stock is not None:
            await self._release(operation, stock)
        await remove_operation(self._client, operation)

    async def _release(self, operation: Json, stock: Json) -> None:
        await release_claim(self._client, stock, Claim.of_operation(operation))


def _build_operation(caller: Caller, body: CreateUnit, request: UnitRequest) -> Json:
    return build_creation(caller, body.operation_id, OperationKind.CREATE_UNIT, "GPUUnit", request)


def _check_places(caller: Caller, body: CreateUnit) -> None:
    if body.namespace not in (None, caller.namespace):
        raise invalid_field("namespace", f"should be {caller.namespace}, the tenant's own, or be left out")
    if body.stock_namespace not in (None, names.STOCK_NAMESPACE):
        raise invalid_field("stockNamespace", f"should be {names.STOCK_NAMESPACE}, or be left out")
