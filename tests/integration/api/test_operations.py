"""Operations on the real API server: what a dead process left is finished or undone, and jobs are done."""

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import (
    RETENTION,
    OperationKind,
    OperationPhase,
    OperationSpec,
    OperationTarget,
)
from gpu_platform.domain.stock import is_claimed, seed_pool_name
from gpu_platform.domain.units import UnitRequest, build_unit
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_SPECS, GPU_UNITS, OPERATIONS, PODS, STOCK_POOLS
from gpu_platform.store.ledger import build_operation, finish_operation
from gpu_platform.store.unit_acquisition import find_unit
from tests.support.cluster_processes import frozen
from tests.support.clusters import TAKEOVER, RunningCluster
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    claim_oldest,
    create_unit,
    delete_unit,
    find,
    get_unit,
    stock_of,
    stock_pool,
    unit_body,
    wait_unit_phase,
)
from tests.support.waiting import NotYet, eventually

HASH = "a" * 64
LEFT_POOL = "left-behind"


async def open_operation(
    kube: KubeClient,
    kind: OperationKind,
    name: str,
    request: Json | None = None,
    *,
    namespace: str = INSTANCES,
    target_kind: str = "GPUUnit",
    uid: str | None = None,
) -> Json:
    """An accepted request, as the API records it, for the object `name`."""
    spec = OperationSpec(
        operation_id=f"test-{kind}-{name}",
        kind=kind,
        request_hash=HASH,
        request=request or {},
        target=OperationTarget(kind=target_kind, namespace=namespace, name=name, uid=uid),
    )
    body = build_operation(f"op-{secrets.token_hex(8)}", namespace, spec)
    return await kube.create(OPERATIONS.collection(namespace), body)


def path_of(operation: Json, subresource: str | None = None) -> str:
    return OPERATIONS.item(operation["metadata"]["name"], operation["metadata"]["namespace"], subresource)


async def operation_in_phase(kube: KubeClient, operation: Json, phase: str) -> Json:
    async def in_phase() -> Json | NotYet:
        now = await kube.get(path_of(operation))
        return now if now.get("status", {}).get("phase") == phase else NotYet(now.get("status"))

    return await eventually(in_phase)


async def operation_removed(kube: KubeClient, operation: Json) -> None:
    async def is_gone() -> bool:
        return await find(kube, path_of(operation)) is None

    await eventually(is_gone)


async def claim_for(kube: KubeClient, operation: Json) -> Json:
    """Oldest free stock, held for the unit that the operation is about."""
    holder = names.claim_holder(INSTANCES, operation["spec"]["target"]["name"])
    return await claim_oldest(kube, await stock_of(kube, LEFT_POOL), "g1.1", holder, operation["metadata"]["name"])


def unit_request(name: str, **changes: Any) -> Json:
    return {"name": name, "specName": "g1.1", "image": "example/train", **changes}


@dataclass(frozen=True)
class Left:
    """An operation that nobody finished, and the stock that it held."""

    operation: Json
    claims: tuple[Json, ...] = ()

    @property
    def unit(self) -> str:
        name: str = self.operation["spec"]["target"]["name"]
        return name


@pytest.fixture(scope="module")
async def left(kube: KubeClient, cluster: RunningCluster) -> AsyncIterator[dict[str, Left]]:
    """What processes left that died at different lines, and what the reconciler made of it."""
    async with stock_pool(kube, LEFT_POOL, 8, replenish="Never"):
        parked = await parked_unit(kube, "left-parked")
        # Else it would finish the first operation while the last one's claims are still to be made.
        with frozen(cluster, "reconciler"):
            everything = await leave(kube, parked)

        async def all_have_ended() -> bool:
            now = [await find(kube, path_of(each.operation)) for each in everything.values()]
            return all(each is None or each.get("status", {}).get("phase") for each in now)

        await eventually(all_have_ended)
        try:
            yield everything
        finally:
            for each in everything.values():
                await delete_unit(kube, each.unit)


async def leave(kube: KubeClient, parked: Json) -> dict[str, Left]:
    asked = await open_operation(kube, OperationKind.START_UNIT, "left-asked", uid=await stopped_uid(kube))
    parked_again = await open_operation(kube, OperationKind.START_UNIT, "left-parked", uid=parked["metadata"]["uid"])
    operations = {
        name: await open_operation(
            kube, OperationKind.CREATE_UNIT, f"left-{name}", unit_request(f"left-{name}", **changes)
        )
        for name, changes in {
            "claimed": {},
            "unmarked": {},
            "early": {},
            "taken": {},
            "refused": {"template": {"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}},
            "greedy": {},
        }.items()
    }
    everything = {name: Left(operation) for name, operation in operations.items()}
    for name in ("claimed", "unmarked", "taken", "refused"):
        everything[name] = Left(operations[name], (await claim_for(kube, operations[name]),))
    everything["greedy"] = Left(
        operations["greedy"],
        (await claim_for(kube, operations["greedy"]), await claim_for(kube, operations["greedy"])),
    )
    everything["parked"] = Left(parked_again, (await claim_for(kube, parked_again),))
    everything["asked"] = Left(asked)
    unmarked = everything["unmarked"]
    spec = OperationSpec.model_validate(unmarked.operation["spec"])
    request = UnitRequest.model_validate(spec.request)
    await create_unit(kube, build_unit(request, INSTANCES, unmarked.claims[0], spec.operation_id, HASH))
    await create_unit(kube, unit_body("left-taken", running=False))
    return everything


async def parked_unit(kube: KubeClient, name: str) -> Json:
    """A unit that ran once, and is stopped."""
    await create_unit(kube, unit_body(name))
    await wait_unit_phase(kube, name, "Ready")
    await kube.patch(GPU_UNITS.item(name, INSTANCES), {"spec": {"running": False}})
    return await wait_unit_phase(kube, name, "Stopped")


async def stopped_uid(kube: KubeClient) -> str:
    unit = await create_unit(kube, unit_body("left-asked", running=False))
    uid: str = unit["metadata"]["uid"]
    return uid


async def claims_of(kube: KubeClient, left: Left) -> list[str]:
    """The stock that is still held for the operation; what became its unit is gone by then."""
    now = [await find(kube, GPU_UNITS.item(stock["metadata"]["name"], STOCK)) for stock in left.claims]
    return [stock["metadata"]["name"] for stock in now if stock is not None and is_claimed(stock)]


async def assert_holds_nothing(kube: KubeClient, left: Left) -> None:
    async def holds_nothing() -> bool:
        return await claims_of(kube, left) == []

    await eventually(holds_nothing)


async def test_a_claim_without_a_unit_is_rolled_forward(kube: KubeClient, left: dict[str, Left]) -> None:
    claimed = left["claimed"]
    operation = await kube.get(path_of(claimed.operation))
    unit = await wait_unit_phase(kube, claimed.unit, "Ready")
    assert operation["status"]["phase"] == "Succeeded"
    assert operation["status"]["targetUid"] == unit["metadata"]["uid"]
    annotations = unit["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_SOURCE_STOCK_NAME] == claimed.claims[0]["metadata"]["name"]
    assert annotations[names.ANNOTATION_OPERATION_ID] == claimed.operation["spec"]["operationID"]
    await assert_holds_nothing(kube, claimed)


async def test_a_unit_without_the_mark_is_marked_and_not_made_again(kube: KubeClient, left: dict[str, Left]) -> None:
    unmarked = left["unmarked"]
    operation = await kube.get(path_of(unmarked.operation))
    unit = await wait_unit_phase(kube, unmarked.unit, "Ready")
    assert operation["status"]["phase"] == "Succeeded"
    assert operation["status"]["targetUid"] == unit["metadata"]["uid"]
    created_at = datetime.fromisoformat(operation["metadata"]["creationTimestamp"])
    assert datetime.fromisoformat(operation["status"]["finishedAt"]) - created_at > TAKEOVER / 2


@pytest.mark.parametrize("name", ["early", "taken", "refused", "asked"])
async def test_what_was_never_accepted_is_forgotten_and_holds_nothing(
    kube: KubeClient, left: dict[str, Left], name: str
) -> None:
    assert await find(kube, path_of(left[name].operation)) is None
    await assert_holds_nothing(kube, left[name])
    for stock in left[name].claims:
        now = await kube.get(GPU_UNITS.item(stock["metadata"]["name"], STOCK))
        assert now["metadata"]["uid"] == stock["metadata"]["uid"]


async def test_what_was_never_accepted_makes_and_changes_no_unit(kube: KubeClient, left: dict[str, Left]) -> None:
    assert await find_unit(kube, INSTANCES, left["early"].unit) is None
    assert await find_unit(kube, INSTANCES, left["refused"].unit) is None
    assert (await get_unit(kube, left["taken"].unit))["spec"]["running"] is False
    assert (await get_unit(kube, left["asked"].unit))["spec"]["running"] is False


async def test_of_two_claims_the_older_becomes_the_unit(kube: KubeClient, left: dict[str, Left]) -> None:
    greedy = left["greedy"]
    older, younger = greedy.claims
    unit = await wait_unit_phase(kube, greedy.unit, "Ready")
    assert unit["metadata"]["annotations"][names.ANNOTATION_SOURCE_STOCK_NAME] == older["metadata"]["name"]
    await assert_holds_nothing(kube, greedy)
    assert await find(kube, GPU_UNITS.item(younger["metadata"]["name"], STOCK)) is not None


async def test_a_stopped_unit_starts_on_the_stock_that_was_claimed_for_it(
    kube: KubeClient, left: dict[str, Left]
) -> None:
    parked = left["parked"]
    [stock] = parked.claims
    operation = await kube.get(path_of(parked.operation))
    unit = await wait_unit_phase(kube, parked.unit, "Ready")
    assert (operation["status"]["phase"], operation["status"]["targetUid"]) == ("Succeeded", unit["metadata"]["uid"])
    assert unit["spec"]["running"] is True
    assert unit["status"]["observedGeneration"] == unit["metadata"]["generation"]
    assert unit["status"]["nodeName"] == stock["status"]["nodeName"]

    async def stock_is_consumed() -> bool:
        return await find(kube, GPU_UNITS.item(stock["metadata"]["name"], STOCK)) is None

    await eventually(stock_is_consumed)


async def test_deleting_removes_that_unit_and_no_other_of_its_name(kube: KubeClient) -> None:
    doomed = await create_unit(kube, unit_body("doomed", running=False))
    spared = await create_unit(kube, unit_body("spared", running=False))
    deleted = await open_operation(kube, OperationKind.DELETE_UNIT, "doomed", uid=doomed["metadata"]["uid"])
    outdated = await open_operation(kube, OperationKind.DELETE_UNIT, "spared", uid=doomed["metadata"]["uid"])
    for operation in (deleted, outdated):
        ended = await operation_in_phase(kube, operation, "Succeeded")
        assert ended["status"]["expiresAt"]
    assert await find_unit(kube, INSTANCES, "doomed") is None
    assert (await get_unit(kube, "spared"))["metadata"]["uid"] == spared["metadata"]["uid"]
    await delete_unit(kube, "spared")


async def test_a_record_outlives_its_unit_by_a_week(kube: KubeClient) -> None:
    unit = await create_unit(kube, unit_body("remembered", running=False))
    opened = await open_operation(kube, OperationKind.CREATE_UNIT, "remembered", unit_request("remembered"))
    uid = unit["metadata"]["uid"]
    now = datetime.now(UTC)
    ended = await finish_operation(kube, opened, OperationPhase.SUCCEEDED, now, target_uid=uid)
    await wait_unit_phase(kube, "remembered", "Stopped")
    assert "expiresAt" not in (await kube.get(path_of(opened)))["status"]
    await delete_unit(kube, "remembered")

    async def expiring() -> Json | None:
        status: Json = (await kube.get(path_of(opened)))["status"]
        return status if "expiresAt" in status else None

    status = await eventually(expiring)
    assert datetime.fromisoformat(status["expiresAt"]) - now > RETENTION - timedelta(minutes=1)
    assert {**status, "expiresAt": None} == {**ended["status"], "expiresAt": None}
    past = (now - timedelta(seconds=1)).isoformat()
    await kube.patch(path_of(opened, "status"), {"status": {"expiresAt": past}})
    await operation_removed(kube, opened)


async def open_job(kube: KubeClient, kind: OperationKind, pool: str, request: Json) -> Json:
    return await open_operation(kube, kind, pool, request, namespace=STOCK, target_kind="StockPool")


@pytest.fixture
async def new_spec(kube: KubeClient) -> AsyncIterator[str]:
    """The name of a spec that does not exist; whatever a job made of it is gone afterwards."""
    name = f"job.{secrets.token_hex(3)}"
    yield name
    for pool in (await kube.get(STOCK_POOLS.collection(STOCK)))["items"]:
        if pool["spec"]["specName"] == name:
            await kube.delete(STOCK_POOLS.item(pool["metadata"]["name"], STOCK))
    if await find(kube, GPU_SPECS.item(name)):
        await kube.delete(GPU_SPECS.item(name))


async def test_a_seed_job_makes_spec_pool_and_exactly_so_many_units(kube: KubeClient, new_spec: str) -> None:
    name = seed_pool_name(new_spec, "once")
    request = {"specName": new_spec, "memory": "64Mi", "gpu": 0, "replicas": 3}
    job = await open_job(kube, OperationKind.SEED_STOCK_UNITS, name, request)
    ended = await operation_in_phase(kube, job, "Succeeded")
    pool = await kube.get(STOCK_POOLS.item(name, STOCK))
    assert ended["status"]["targetUid"] == pool["metadata"]["uid"]
    assert ended["status"]["startedAt"] <= ended["status"]["finishedAt"]
    assert (pool["spec"]["replenish"], pool["status"]["seeded"]) == ("Never", 3)
    assert len(await stock_of(kube, name)) == 3
    assert (await kube.get(GPU_SPECS.item(new_spec)))["spec"]["memory"] == "64Mi"


async def test_a_pool_job_makes_the_pool_and_a_second_one_of_its_name_fails(kube: KubeClient, new_spec: str) -> None:
    request = {"name": "job-pool", "specName": new_spec, "memory": "64Mi", "gpu": 0, "replicas": 0}
    first = await open_job(kube, OperationKind.CREATE_STOCK_POOL, "job-pool", request)
    ended = await operation_in_phase(kube, first, "Succeeded")
    pool = await kube.get(STOCK_POOLS.item("job-pool", STOCK))
    assert ended["status"]["targetUid"] == pool["metadata"]["uid"]
    await kube.patch(
        STOCK_POOLS.item("job-pool", STOCK), {"metadata": {"annotations": {names.ANNOTATION_OPERATION_ID: "x"}}}
    )
    second = await open_job(kube, OperationKind.CREATE_STOCK_POOL, "job-pool", request)
    failed = await operation_in_phase(kube, second, "Failed")
    assert failed["status"]["reason"] == "NameTaken"


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"specName": "g1.1", "gpu": 5}, "InvalidSpec", "gpu: the GPUSpec 'g1.1' has 1, not 5"),
        ({"specName": "g1.1", "memory": "1Ki"}, "InvalidSpec", "memory: the GPUSpec 'g1.1' has"),
        ({"memory": "64Mi"}, "InvalidSpec", "a new one needs memory and gpu"),
        ({"replicas": 0}, "InvalidRequest", "does not fit the schema"),
    ],
)
async def test_a_job_that_cannot_be_done_fails_with_words_and_makes_nothing(
    kube: KubeClient, new_spec: str, change: Json, reason: str, words: str
) -> None:
    request = {"specName": new_spec, "replicas": 1, **change}
    job = await open_job(kube, OperationKind.SEED_STOCK_UNITS, "never-made", request)
    failed = await operation_in_phase(kube, job, "Failed")
    assert failed["status"]["reason"] == reason
    assert words in failed["status"]["message"]
    assert await find(kube, STOCK_POOLS.item("never-made", STOCK)) is None
    assert await find(kube, GPU_SPECS.item(new_spec)) is None


async def test_one_more_restart_replaces_the_pod(kube: KubeClient) -> None:
    async def pods() -> list[str]:
        selector = {"labelSelector": f"{names.LABEL_UNIT}=restarted"}
        return [pod["metadata"]["uid"] for pod in (await kube.get(PODS.collection(INSTANCES), selector))["items"]]

    await create_unit(kube, unit_body("restarted"))
    await wait_unit_phase(kube, "restarted", "Ready")
    before = await pods()
    edited = await kube.patch(GPU_UNITS.item("restarted", INSTANCES), {"spec": {"restarts": 1}})

    async def is_ready_again() -> bool:
        status = (await get_unit(kube, "restarted"))["status"]
        is_current = status["observedGeneration"] == edited["metadata"]["generation"]
        return bool(is_current and status["phase"] == "Ready")

    await eventually(is_ready_again)
    after = await pods()
    assert len(after) == 1
    assert after != before
    await delete_unit(kube, "restarted")
