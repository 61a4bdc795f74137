"""The operations controller as a whole: killed after any write, or run twice at once, it comes to the same end."""

import asyncio
import itertools
import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import hold_of
from gpu_platform.domain.operations import TAKEOVER
from gpu_platform.domain.stock import is_claimed
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_SPECS, GPU_STORAGES, GPU_UNITS, OPERATIONS, STOCK_POOLS
from reconciler.operations.controller import TRIM_INTERVAL, TrimPace
from tests.support.builders import NOW, make_function, make_stock, make_storage, make_unit
from tests.support.scripted_kube import Store
from tests.unit.reconciler.operations.api_server import ApiServer, KilledError, in_namespace, new_store, put, run
from tests.unit.reconciler.operations.records import POOL_REQUEST, SEED_REQUEST, UNIT_REQUEST, claim, make_record

HOME = names.DEFAULT_INSTANCE_NAMESPACE
STOCK = names.STOCK_NAMESPACE


def a_claim_without_a_unit() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("CreateUnit", UNIT_REQUEST).item)
    put(store, GPU_UNITS, claim("pool-0", NOW - TAKEOVER))
    put(store, GPU_UNITS, claim("pool-1", NOW))
    return store


def a_name_that_is_taken() -> Store:
    store = a_claim_without_a_unit()
    put(store, GPU_UNITS, make_unit())
    return store


def a_start_with_a_claim() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("StartUnit", uid="uid-demo").item)
    put(store, GPU_UNITS, make_unit(running=False))
    put(store, GPU_UNITS, claim("pool-0", NOW - TAKEOVER))
    put(store, GPU_UNITS, claim("pool-1", NOW))
    return store


def a_deletion() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("DeleteUnit", uid="uid-demo").item)
    put(store, GPU_UNITS, make_unit())
    put(store, GPU_UNITS, make_stock())
    return store


def a_deletion_of_a_function() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("DeleteFunction", uid="uid-demo").item)
    put(store, GPU_FUNCTIONS, make_function("demo"))
    return store


def a_function_without_the_mark() -> Store:
    store = new_store()
    record = make_record("CreateFunction", {"name": "demo"})
    put(store, OPERATIONS, record.item)
    function = make_function("demo")
    function["metadata"]["annotations"] = {
        names.ANNOTATION_OPERATION_ID: record.spec.operation_id,
        names.ANNOTATION_REQUEST_HASH: record.spec.request_hash,
    }
    put(store, GPU_FUNCTIONS, function)
    return store


def a_function_that_was_never_made() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("CreateFunction", {"name": "demo"}).item)
    return store


def a_claim_for_a_unit_that_mounts(*storages: Json) -> Store:
    store = new_store()
    mounts = [{"name": "weights", "mountPath": "/weights"}, {"name": "data", "mountPath": "/data"}]
    put(store, OPERATIONS, make_record("CreateUnit", {**UNIT_REQUEST, "storageMounts": mounts}).item)
    put(store, GPU_UNITS, claim("pool-0", NOW - TAKEOVER))
    for storage in storages:
        put(store, GPU_STORAGES, storage)
    return store


def held_by(unit: str, storage: Json) -> Json:
    storage["metadata"]["annotations"] |= {
        names.ANNOTATION_MOUNTED_BY: f"unit/{unit}",
        names.ANNOTATION_MOUNTED_AT: NOW.isoformat(),
    }
    return storage


def a_claim_and_free_storages() -> Store:
    return a_claim_for_a_unit_that_mounts(make_storage("weights"), make_storage("data"))


def a_claim_and_storages_held_for_it() -> Store:
    return a_claim_for_a_unit_that_mounts(
        held_by("demo", make_storage("weights")), held_by("demo", make_storage("data"))
    )


def a_claim_and_a_storage_of_another() -> Store:
    return a_claim_for_a_unit_that_mounts(held_by("other", make_storage("weights")), make_storage("data"))


def a_claim_and_a_storage_that_is_gone() -> Store:
    return a_claim_for_a_unit_that_mounts(make_storage("data"))


def a_deletion_of_a_storage() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("DeleteStorage", uid="uid-demo").item)
    put(store, GPU_STORAGES, make_storage("demo"))
    return store


def a_deletion_of_a_storage_that_was_mounted_meanwhile() -> Store:
    store = a_deletion_of_a_storage()
    put(store, GPU_STORAGES, held_by("other", make_storage("demo")))
    return store


def a_recovery_that_was_told() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("RecoverStorage", uid="uid-demo").item)
    storage = make_storage("demo")
    storage["metadata"]["annotations"] = {names.ANNOTATION_RECOVERY_NONCE: "op-1"}
    put(store, GPU_STORAGES, storage)
    return store


def a_recovery_that_was_not_told() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("RecoverStorage", uid="uid-demo").item)
    put(store, GPU_STORAGES, make_storage("demo"))
    return store


def a_seed_job() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("SeedStockUnits", SEED_REQUEST).item)
    return store


def a_pool_job() -> Store:
    store = new_store()
    put(store, OPERATIONS, make_record("CreateStockPool", {**POOL_REQUEST, "memory": "1Gi", "gpu": 0}).item)
    return store


Summary = tuple[str | None, list[str], list[str], list[str], list[str]]


def summarise(store: Store, namespace: str) -> Summary:
    """How the operation ended, and what there is then: what tenants have, with who holds it; stock that is held, pools,
    specs."""
    operation = store.objects.get(OPERATIONS.item("op-1", namespace))
    phase = operation.get("status", {}).get("phase") if operation else "removed"
    units = [
        each["metadata"]["name"] for path in (GPU_UNITS, GPU_FUNCTIONS) for each in in_namespace(store, path, HOME)
    ]
    units += [describe_storage(each) for each in in_namespace(store, GPU_STORAGES, HOME)]
    held = [each["metadata"]["name"] for each in in_namespace(store, GPU_UNITS, STOCK) if is_claimed(each)]
    pools = [each["metadata"]["name"] for each in in_namespace(store, STOCK_POOLS, STOCK)]
    specs = [each["metadata"]["name"] for each in in_namespace(store, GPU_SPECS, None)]
    return phase, units, held, pools, specs


def describe_storage(storage: Json) -> str:
    hold = hold_of(storage)
    return f"{storage['metadata']['name']} of {hold.holder}" if hold else str(storage["metadata"]["name"])


every_scene = pytest.mark.parametrize(
    ("scene", "namespace", "end"),
    [
        (a_claim_without_a_unit, HOME, ("Succeeded", ["demo"], ["pool-0"], [], [])),
        (a_name_that_is_taken, HOME, ("removed", ["demo"], [], [], [])),
        (a_start_with_a_claim, HOME, ("Succeeded", ["demo"], ["pool-0"], [], [])),
        (a_deletion, HOME, ("Succeeded", [], [], [], [])),
        (a_deletion_of_a_function, HOME, ("Succeeded", [], [], [], [])),
        (a_function_without_the_mark, HOME, ("Succeeded", ["demo"], [], [], [])),
        (a_function_that_was_never_made, HOME, ("removed", [], [], [], [])),
        (
            a_claim_and_free_storages,
            HOME,
            ("Succeeded", ["demo", "weights of unit/demo", "data of unit/demo"], ["pool-0"], [], []),
        ),
        (
            a_claim_and_storages_held_for_it,
            HOME,
            ("Succeeded", ["demo", "weights of unit/demo", "data of unit/demo"], ["pool-0"], [], []),
        ),
        (a_deletion_of_a_storage, HOME, ("Succeeded", [], [], [], [])),
        (
            a_deletion_of_a_storage_that_was_mounted_meanwhile,
            HOME,
            ("removed", ["demo of unit/other"], [], [], []),
        ),
        (a_recovery_that_was_told, HOME, ("Succeeded", ["demo"], [], [], [])),
        (a_recovery_that_was_not_told, HOME, ("removed", ["demo"], [], [], [])),
        (a_seed_job, STOCK, ("Running", [], [], ["pool"], ["g1.1"])),
        (a_pool_job, STOCK, ("Succeeded", [], [], ["pool"], ["g1.1"])),
    ],
)


@every_scene
async def test_killed_after_any_write_another_process_comes_to_the_same_end(
    scene: Callable[[], Store], namespace: str, end: Summary
) -> None:
    for number in itertools.count():
        store = scene()
        try:
            await run(store, ApiServer(store, dies_after=number), namespace)
        except KilledError:
            await run(store, ApiServer(store), namespace)
            assert summarise(store, namespace) == end
        else:
            assert number > 0
            break
    assert summarise(store, namespace) == end


@every_scene
async def test_two_processes_at_once_come_to_the_same_end(
    scene: Callable[[], Store], namespace: str, end: Summary
) -> None:
    for seed in range(200):
        store = scene()
        chance = random.Random(seed)
        clients = [ApiServer(store, chance=chance) for _ in range(2)]
        await asyncio.gather(*(run(store, client, namespace) for client in clients))
        assert summarise(store, namespace) == end, f"seed {seed}"


@every_scene
async def test_a_look_at_the_end_writes_nothing(scene: Callable[[], Store], namespace: str, end: Summary) -> None:
    store = scene()
    await run(store, ApiServer(store), namespace)
    # The end brings one more look, which drops the request.
    await run(store, ApiServer(store), namespace)
    again = ApiServer(store)
    await run(store, again, namespace)
    assert again.writes == 0
    assert summarise(store, namespace) == end


async def test_a_unit_that_the_api_server_refuses_for_good_is_given_up() -> None:
    store = a_claim_without_a_unit()
    await run(store, ApiServer(store, refuses="gpuunits"), HOME)
    assert summarise(store, HOME) == ("removed", [], [], [], [])


@pytest.mark.parametrize(
    ("scene", "left"),
    [
        (a_claim_and_a_storage_of_another, ["weights of unit/other", "data"]),
        (a_claim_and_a_storage_that_is_gone, ["data"]),
    ],
)
async def test_a_unit_whose_storages_are_not_to_be_had_is_given_up_with_all_that_was_taken_for_it(
    scene: Callable[[], Store], left: list[str]
) -> None:
    store = scene()
    await run(store, ApiServer(store), HOME)
    assert summarise(store, HOME) == ("removed", left, [], [], [])


async def test_a_unit_with_storages_that_the_api_server_refuses_gives_them_back() -> None:
    store = a_claim_and_free_storages()
    await run(store, ApiServer(store, refuses="gpuunits"), HOME)
    assert summarise(store, HOME) == ("removed", ["weights", "data"], [], [], [])


async def test_a_pool_that_the_api_server_refuses_for_good_fails_the_job() -> None:
    store = a_pool_job()
    await run(store, ApiServer(store, refuses="stockpools"), STOCK)
    assert summarise(store, STOCK) == ("Failed", [], [], [], ["g1.1"])


async def test_the_request_of_an_operation_that_has_ended_is_dropped() -> None:
    store = a_claim_without_a_unit()
    await run(store, ApiServer(store), HOME)
    await run(store, ApiServer(store), HOME)
    spec = store.objects[OPERATIONS.item("op-1", HOME)]["spec"]
    assert (spec.get("request"), spec["requestHash"]) == (None, "a" * 64)


def test_requests_are_dropped_one_after_the_other_in_the_order_in_which_they_came() -> None:
    pace = TrimPace()
    assert pace.wait(("a", "first"), NOW) == timedelta()
    assert [pace.wait(("a", name), NOW) for name in ("second", "third")] == [TRIM_INTERVAL, 2 * TRIM_INTERVAL]
    assert pace.wait(("a", "second"), NOW + TRIM_INTERVAL) == timedelta()
    pace.forget(("a", "third"))
    assert pace.wait(("a", "third"), NOW + TRIM_INTERVAL) == 2 * TRIM_INTERVAL
    assert pace.wait(("a", "third"), NOW + 3 * TRIM_INTERVAL) == timedelta()
