"""The limits of a tenant's objects at accept: from the caches, and without a place for requests that are replayed."""

from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain.functions import FunctionRequest
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeError, UnreachableError
from gpu_platform.kube.errors import error_from_status
from gpu_platform.kube.informer import ObjectCache, WatchEvent, WatchTiming
from gpu_platform.kube.paths import GPU_UNITS, OPERATIONS
from gpu_platform.store.ledger import build_deletion, create_or_adopt, open_operation
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError
from platform_api.objects.idempotent_create import as_refusal, build_creation
from platform_api.objects.tenant_limits import ObjectLimits
from tests.support.builders import make_unit
from tests.support.scripted_kube import StoredObjects

ALICE = Caller(key_id="k", tenant="default", roles=frozenset({Role.EDITOR}))
BOB = Caller(key_id="b", tenant="bob", roles=frozenset({Role.EDITOR}))
LIMITS = TenantLimits(functions=1, units=1, operations=2)


class Platform:
    def __init__(self) -> None:
        self.server = StoredObjects()
        self.cluster = Cluster(self.server, WatchTiming(timedelta(minutes=10)))
        self.limits = ObjectLimits(self.cluster, lambda _: LIMITS)

    def show(self, cache: ObjectCache, name: str, caller: Caller = ALICE, **fields: Any) -> None:
        metadata = {"namespace": caller.namespace, "name": name, "uid": name, "resourceVersion": "1"}
        cache._take(WatchEvent("ADDED", {"metadata": metadata, "spec": {}, **fields}))

    async def record(self, operation: Json) -> None:
        await self.server.create(OPERATIONS.collection(operation["metadata"]["namespace"]), operation)


def create_function(name: str = "words", caller: Caller = ALICE) -> Json:
    request = FunctionRequest(name=name, spec_name="g1.1", image="example/words")
    return build_creation(caller, f"op-{name}", OperationKind.CREATE_FUNCTION, "GPUFunction", request)


async def test_below_the_limits_a_new_request_costs_no_call() -> None:
    platform = Platform()
    platform.show(platform.cluster.functions, "other", BOB)
    assert await platform.limits.find_replay(ALICE, create_function()) is None
    assert platform.server.requests == []


@pytest.mark.parametrize("shown", [("functions", 1), ("operations", 2)])
async def test_at_a_limit_a_new_request_is_refused_and_a_replay_is_found(shown: tuple[str, int]) -> None:
    kind, count = shown
    platform = Platform()
    for number in range(count):
        platform.show(getattr(platform.cluster, kind), f"old-{number}")
    with pytest.raises(ApiError) as refused:
        await platform.limits.find_replay(ALICE, create_function())
    assert (refused.value.status, refused.value.code) == (403, "quota_exceeded")
    assert f"its limit {kind} is {count}" in refused.value.message
    assert await platform.limits.find_replay(BOB, create_function(caller=BOB)) is None

    await platform.record(create_function())
    replay = await platform.limits.find_replay(ALICE, create_function())
    assert replay is not None
    assert not replay.is_new


async def test_what_the_cache_shows_is_read_and_not_created_again() -> None:
    platform = Platform()
    wanted = create_function()
    await platform.record(wanted)
    platform.show(platform.cluster.operations, wanted["metadata"]["name"])
    replay = await platform.limits.find_replay(ALICE, wanted)
    assert replay is not None
    assert not replay.is_new


async def test_what_the_cache_still_shows_and_is_gone_may_be_recorded() -> None:
    platform = Platform()
    wanted = create_function()
    platform.show(platform.cluster.operations, wanted["metadata"]["name"])
    assert await platform.limits.find_replay(ALICE, wanted) is None


def test_of_an_operation_that_is_no_preview_only_the_identity_is_kept() -> None:
    platform = Platform()
    platform.show(platform.cluster.operations, "op-1", spec={"kind": "CreateUnit", "request": {"large": "x"}})
    kept = platform.cluster.operations.get(ALICE.namespace, "op-1")
    assert kept is not None
    assert set(kept) == {"metadata"}
    assert platform.cluster.operations.count(ALICE.namespace) == 1
    assert platform.cluster.operations.count(BOB.namespace) == 0


BUSY = {"reason": "Conflict", "message": "the object has been modified", "details": {"kind": "resourcequotas"}}
QUOTA_ERRORS = pytest.mark.parametrize(
    "error",
    [
        KubeError(403, "Forbidden", "x is forbidden: exceeded quota: platform-object-counts"),
        error_from_status(409, BUSY),
    ],
    ids=["full", "busy"],
)


def make_full_server(error: KubeError) -> StoredObjects:
    """Looks at the quota before it looks at the name, as the API server does."""

    def refuse(method: str, _path: str) -> None:
        if method == "create":
            raise error

    server = StoredObjects()
    server.fault = refuse
    return server


@QUOTA_ERRORS
async def test_a_full_or_busy_quota_does_not_hide_a_recorded_deletion(error: KubeError) -> None:
    server = make_full_server(error)
    deletion = build_deletion(make_unit("demo", ALICE.namespace), "default")
    with pytest.raises(type(error)):
        await open_operation(server, deletion)
    path = OPERATIONS.item(deletion["metadata"]["name"], ALICE.namespace)
    server.store.objects[path] = deletion
    opened = await open_operation(server, deletion)
    assert not opened.is_new


@QUOTA_ERRORS
async def test_a_full_or_busy_quota_does_not_hide_the_object_of_an_earlier_try(error: KubeError) -> None:
    server = make_full_server(error)
    unit = make_unit("demo", ALICE.namespace)
    with pytest.raises(type(error)):
        await create_or_adopt(server, GPU_UNITS, unit)
    server.store.objects[GPU_UNITS.item("demo", ALICE.namespace)] = unit
    assert await create_or_adopt(server, GPU_UNITS, unit) == unit


def test_a_creation_that_could_not_be_counted_is_undone_and_may_be_sent_again() -> None:
    refusal = as_refusal(error_from_status(409, BUSY), "unit")
    assert refusal is not None
    assert (refusal.status, refusal.headers["Retry-After"]) == (503, "1")
    # An answer that was lost says nothing.
    assert as_refusal(UnreachableError(0, "Timeout", "no answer"), "unit") is None
