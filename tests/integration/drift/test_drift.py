"""What was accepted stays true: edits and deletions behind the API are put right, and wishes never are.

That an event brings a pass at once is held in virtual time by test_loop.
"""

import shutil
from collections.abc import AsyncIterator

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, PatchType
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_UNITS, STOCK_POOLS
from gpu_platform.store.stack_leases import find_record
from stacks.runner.backend import shard_of
from tests.support.api import UNITS
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon
from tests.support.drift import SPEC, drifting_stock, edit_unit, post_drift_unit
from tests.support.figures import read_worker_figure
from tests.support.stack_workers import (
    StackPlace,
    accepted_spec_of,
    cleared_worker,
    delete_units,
    expect_stack_deleted,
    pool_stack,
    unit_stack,
    wait_recorded,
)
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    create_unit,
    delete_unit,
    find,
    get_unit,
    unit_body,
    wait_unit_phase,
)
from tests.support.units_api import delete_operations, wait_unit_view
from tests.support.waiting import eventually

POOLS = "/api/v1/operator/stockpools"
DRIFT = "/api/v1/operator/drift?limit=500"
AUDIT_SECONDS = 5


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> StackPlace:
    return StackPlace(tmp_path_factory.mktemp("drift"))


@pytest.fixture(scope="module")
async def stock(kube: KubeClient) -> AsyncIterator[None]:
    async with drifting_stock(kube, "drifting", 4):
        yield


@pytest.fixture(scope="module")
async def worker(
    cluster: RunningCluster,
    kube: KubeClient,
    place: StackPlace,
    stock: None,  # noqa: ARG001 - units are made from it
) -> AsyncIterator[Daemon]:
    async with cleared_worker(cluster, kube, place, AUDIT_PERIOD_SECONDS=str(AUDIT_SECONDS)) as daemon:
        yield daemon


@pytest.mark.usefixtures("stock")
async def test_what_no_worker_has_recorded_yet_is_listed_with_what_is_to_be_done(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    """No stack worker runs yet."""
    await post_drift_unit(api, "drift-unrecorded")

    async def is_listed() -> Json | None:
        report: Json = (await api.get(DRIFT)).json()["data"]
        return next((item for item in report["items"] if item["name"] == "drift-unrecorded"), None)

    item = await eventually(is_listed)
    assert (item["stack"], item["action"]) == ("gpu-unit/default.drift-unrecorded", "record")
    assert item["doing"] == "the stack worker records the object"
    assert (await api.delete(f"{UNITS}/drift-unrecorded")).status_code == 204

    async def is_over() -> bool:
        return await is_listed() is None

    await eventually(is_over)
    await delete_operations(kube, "drift-unrecorded")


@pytest.mark.usefixtures("worker")
async def test_an_edited_image_is_put_back_at_once_and_nothing_restarts(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await post_drift_unit(api, "drift-edited", image="example/accepted")
    before = await get_unit(kube, "drift-edited")
    deployment = await kube.get(DEPLOYMENTS.item(names.child_name("drift-edited"), INSTANCES))

    async def is_back() -> bool:
        return bool((await get_unit(kube, "drift-edited"))["spec"] == before["spec"])

    await edit_unit(kube, "drift-edited", image="example/edited", running=False)
    await eventually(is_back)

    async def is_told() -> Json | None:
        events: list[Json] = (await api.get(f"{UNITS}/drift-edited/events")).json()["data"]
        return next((event for event in events if event["reason"] == "DriftCorrected"), None)

    event = await eventually(is_told)
    assert event["message"].startswith("spec.image, spec.running was changed behind the API")
    after = await kube.get(DEPLOYMENTS.item(names.child_name("drift-edited"), INSTANCES))
    assert after["metadata"]["generation"] == deployment["metadata"]["generation"], "the unit ran on as it was"

    async def is_reported() -> Json | None:
        report: Json = (await api.get(DRIFT)).json()["data"]
        return next((each for each in report["corrected"] if each["stack"].endswith(".drift-edited")), None)

    corrected = await eventually(is_reported)
    assert {"field": "spec.running", "accepted": True, "found": False} in corrected["differences"]
    await delete_units(api, kube, "drift-edited")


@pytest.mark.usefixtures("worker")
async def test_a_pool_that_somebody_scaled_is_put_back(api: httpx.AsyncClient, kube: KubeClient) -> None:
    request = {"operationID": "drift-pool", "name": "drift-pool", "specName": SPEC, "replicas": 1}
    assert (await api.post(POOLS, json=request)).status_code == 202
    path = STOCK_POOLS.item("drift-pool", STOCK)
    await eventually(lambda: find(kube, path))
    await kube.patch(path, {"spec": {"replicas": 3}}, PatchType.MERGE)

    async def is_back() -> bool:
        return bool((await kube.get(path))["spec"]["replicas"] == 1)

    await eventually(is_back)
    assert (await api.delete(f"{POOLS}/drift-pool")).status_code == 204
    await expect_stack_deleted(kube, pool_stack("drift-pool"))


async def test_a_unit_that_somebody_deleted_is_back_before_any_audit(
    api: httpx.AsyncClient, kube: KubeClient, worker: Daemon
) -> None:
    await post_drift_unit(api, "drift-deleted")
    path = GPU_UNITS.item("drift-deleted", INSTANCES)

    before = await get_unit(kube, "drift-deleted")
    await wait_recorded_as_it_is(kube, "drift-deleted")
    await kube.delete(path)

    async def is_back() -> Json | None:
        found = await find(kube, path)
        return found if found is not None and found["metadata"]["uid"] != before["metadata"]["uid"] else None

    after = await eventually(is_back)
    assert (after["spec"], accepted_spec_of(after)) == (before["spec"], accepted_spec_of(before))
    lease = unit_stack("drift-deleted").lease
    audits = [entry for entry in worker.entries() if entry["message"] == "audit.different"]
    assert lease not in {entry["stack"] for entry in audits}, "its end brought it back, not a look now and then"
    await wait_unit_view(api, "drift-deleted", "Ready")

    async def is_reported() -> bool:
        report: Json = (await api.get(DRIFT)).json()["data"]
        return any(each["stack"].endswith(".drift-deleted") for each in report["corrected"])

    await eventually(is_reported)
    await wait_recorded_as_it_is(kube, "drift-deleted")
    await delete_units(api, kube, "drift-deleted")


async def wait_recorded_as_it_is(kube: KubeClient, name: str) -> None:
    """This very unit."""

    async def is_said() -> bool:
        unit, record = await get_unit(kube, name), await find_record(kube, unit_stack(name))
        return record is not None and record.recorded is not None and record.uid == unit["metadata"]["uid"]

    await eventually(is_said, every=0.1)


async def test_a_stack_whose_state_is_lost_is_recorded_again_by_an_audit(
    api: httpx.AsyncClient, kube: KubeClient, place: StackPlace, worker: Daemon
) -> None:
    """Each stack's is due once per period, see test_audit."""
    address = unit_stack("drift-stateless")
    await post_drift_unit(api, "drift-stateless")
    unit = await get_unit(kube, "drift-stateless")
    before = await wait_recorded(kube, address, accepted_spec_of(unit))
    inputs = place.inputs_of(address)
    while (root := place.backend / shard_of(address.stack)).exists():
        # A process that looks at it just now may write below it.
        shutil.rmtree(root, ignore_errors=True)

    async def is_recorded_again() -> bool:
        record = await find_record(kube, address)
        return record is not None and record.recorded is not None and record.recorded != before.recorded

    await eventually(is_recorded_again, every=0.2)
    audits = [entry for entry in worker.entries() if entry["message"].startswith("audit.")]
    assert address.lease in {entry["stack"] for entry in audits}
    assert place.inputs_of(address) == inputs
    assert (await get_unit(kube, "drift-stateless"))["metadata"]["uid"] == unit["metadata"]["uid"]
    await delete_units(api, kube, "drift-stateless")


async def test_what_kubectl_made_is_reconciled_as_it_is_edited_and_never_recorded_or_removed(
    kube: KubeClient, worker: Daemon
) -> None:
    made = await create_unit(kube, unit_body("drift-own", specName=SPEC, image="example/one"))
    await wait_unit_phase(kube, "drift-own", "Ready")
    before = await count_looks(worker)
    await edit_unit(kube, "drift-own", image="example/two")

    async def runs_it() -> bool:
        deployment = await kube.get(DEPLOYMENTS.item(names.child_name("drift-own"), INSTANCES))
        return bool(deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example/two")

    await eventually(runs_it)

    async def is_seen() -> bool:
        return await count_looks(worker) > before

    await eventually(is_seen)
    unit = await get_unit(kube, "drift-own")
    assert (unit["metadata"]["uid"], unit["spec"]["image"]) == (made["metadata"]["uid"], "example/two")
    assert await find_record(kube, unit_stack("drift-own")) is None
    await delete_unit(kube, "drift-own")


async def count_looks(worker: Daemon) -> float:
    """How often it has looked at a stack, and ended what it had to do about it."""
    return await read_worker_figure(worker, "passes_total", controller="stacks")
