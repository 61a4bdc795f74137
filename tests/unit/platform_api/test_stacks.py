"""Stacks: what is shown of them, waiting for them, and previews as jobs."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gpu_platform.adapters.kube import UnreachableError
from gpu_platform.adapters.kube.paths import LEASES, OPERATIONS
from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import GPUUnitSpec
from gpu_platform.domain.operations import PREVIEW_RETENTION, operation_name
from gpu_platform.domain.stack_records import Recorded, StackRecord, record_annotations, record_labels
from gpu_platform.domain.stacks import StackAddress, StackKind, accepted_hash
from gpu_platform.domain.tenants import Role
from gpu_platform.domain.unit_requests import accepted_text
from platform_api.bounded_client import BoundedClient
from platform_api.gpu_units.schemas import view_of as unit_view_of
from platform_api.http.errors import ApiError
from platform_api.keys.key_ring import Caller
from platform_api.pulse import Pulse
from platform_api.stacks.previews import accept_preview, build_preview, get_preview
from platform_api.stacks.recording import LONGEST_PAUSE_SECONDS, WAIT_SECONDS, WAITING_LIMIT, RecordingWaits
from platform_api.stacks.schemas import StackView, preview_view_of
from platform_api.stacks.service import get_stack
from platform_api.stock_pools.schemas import view_of as pool_view_of
from tests.support.builders import NOW, make_pool, make_unit
from tests.support.scripted_kube import StoredObjects
from tests.support.virtual_time import now, run_in_virtual_time

Json = dict[str, Any]

ADDRESS = StackAddress(StackKind.GPU_UNIT, "default", "demo")
LEASE = LEASES.item(ADDRESS.lease, names.SYSTEM_NAMESPACE)
SPEC = accepted_text(GPUUnitSpec(spec_name="g1.1", image="example/train"))
OLD_SPEC = accepted_text(GPUUnitSpec(spec_name="g1.1", image="example/old"))
ALICE = Caller(key_id="k", tenant="default", roles=frozenset({Role.VIEWER}))


class ApiServer(StoredObjects):
    """Gives new objects what an API server gives them."""

    async def create(
        self, path: str, body: Json, params: Mapping[str, str] | None = None, *, timeout: float = 10.0
    ) -> Json:
        given = {"uid": f"uid-{body['metadata']['name']}", "creationTimestamp": NOW.isoformat()}
        return await super().create(path, {**body, "metadata": {**body["metadata"], **given}}, params, timeout=timeout)


def bounded(server: StoredObjects) -> BoundedClient:
    return BoundedClient(server, Pulse(server))


def accepted_unit(name: str = "demo", **annotations: str) -> Json:
    unit = make_unit(name)
    unit["metadata"]["annotations"] = {names.ANNOTATION_ACCEPTED_SPEC: SPEC, **annotations}
    return unit


def record(uid: str = "uid-demo", spec: str | None = SPEC, **fields: Any) -> StackRecord:
    outputs = {"uid": uid}
    said = Recorded(spec, "op-1", "hash", NOW, resources=2, outputs=outputs) if spec else None
    return StackRecord(ADDRESS, uid, said, **fields)


def put(server: StoredObjects, entry: StackRecord) -> None:
    metadata = {"name": ADDRESS.lease, "labels": record_labels(ADDRESS), "annotations": record_annotations(entry)}
    server.store.objects[LEASE] = {"metadata": metadata, "spec": {}}


async def shown(entry: StackRecord | None, item: Json | None = None) -> StackView:
    server = ApiServer()
    if entry is not None:
        put(server, entry)
    return await get_stack(bounded(server), item or accepted_unit(), "unit")


# what is shown


async def test_a_stack_that_says_what_was_accepted_is_recorded() -> None:
    assert (await shown(record())).to_json() == {
        "name": "gpu-unit/default.demo",
        "recorded": True,
        "acceptedHash": accepted_hash(SPEC),
        "recordedHash": accepted_hash(SPEC),
        "recordedAt": "2030-01-01T12:00:00Z",
        "resources": 2,
        "outputs": {"uid": "uid-demo"},
        "failures": 0,
    }


async def test_a_stack_that_nobody_has_begun_has_a_name_and_nothing_else() -> None:
    view = await shown(None)
    assert view.to_json() == {
        "name": "gpu-unit/default.demo",
        "recorded": False,
        "acceptedHash": accepted_hash(SPEC),
        "failures": 0,
    }


async def test_a_stack_that_says_something_older_is_not_recorded_and_says_what_it_says() -> None:
    view = await shown(record(spec=OLD_SPEC, error="the backend is away", failures=3))
    assert (view.recorded, view.recorded_hash) == (False, accepted_hash(OLD_SPEC))
    assert (view.error, view.failures) == ("the backend is away", 3)


async def test_what_was_recorded_of_an_earlier_unit_of_the_name_is_not_shown_but_what_keeps_it_is() -> None:
    view = await shown(record(uid="uid-earlier", error="cannot be removed", failures=1))
    assert (view.recorded, view.recorded_hash, view.resources) == (False, None, None)
    assert view.error == "cannot be removed"


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({}, "it was not accepted over this API, but made by other means, such as kubectl"),
        (
            {names.ANNOTATION_ACCEPTED_SPEC: SPEC, names.ANNOTATION_OWNER_STACK: "shop/prod"},
            "belongs to the Pulumi stack shop/prod",
        ),
        ({names.ANNOTATION_ACCEPTED_SPEC: "nonsense"}, "nobody can read its annotation"),
    ],
)
async def test_a_unit_that_is_not_ours_to_record_has_no_stack_and_the_404_says_why(annotations: Json, why: str) -> None:
    unit = make_unit()
    unit["metadata"]["annotations"] = annotations
    with pytest.raises(ApiError) as refused:
        await shown(None, unit)
    assert (refused.value.status, refused.value.code) == (404, "stack_not_found")
    assert why in refused.value.message
    assert unit_view_of(unit).stack is None


async def test_only_one_entry_is_read() -> None:
    server = ApiServer()
    await get_stack(bounded(server), accepted_unit(), "unit")
    assert server.requests == [("get", LEASE)]


def test_units_and_pools_show_their_stack_at_once() -> None:
    pool = make_pool()
    pool["metadata"] |= {"creationTimestamp": NOW.isoformat(), "annotations": {names.ANNOTATION_ACCEPTED_SPEC: "{}"}}
    assert pool_view_of(pool).stack == "stock-pool/stock.pool"
    assert unit_view_of(accepted_unit()).stack == "gpu-unit/default.demo"


# waiting


def test_a_wait_ends_as_soon_as_the_stack_is_recorded() -> None:
    async def wait() -> tuple[bool, float]:
        server = ApiServer()
        asyncio.get_running_loop().call_later(3.0, put, server, record())
        return await RecordingWaits(bounded(server)).wait(accepted_unit()), now()

    is_recorded, seconds = run_in_virtual_time(wait())
    assert is_recorded
    assert 3.0 <= seconds <= 3.0 + LONGEST_PAUSE_SECONDS


def test_a_wait_has_an_end() -> None:
    async def wait() -> tuple[bool, float]:
        return await RecordingWaits(bounded(ApiServer())).wait(accepted_unit()), now()

    is_recorded, seconds = run_in_virtual_time(wait())
    assert (is_recorded, seconds) == (False, WAIT_SECONDS)


def test_a_kubernetes_that_is_away_is_waited_for() -> None:
    async def wait() -> bool:
        server = ApiServer()
        put(server, record())

        def away(_method: str, _path: str) -> None:
            if now() < 1.0:
                raise UnreachableError(0, "Unreachable", "away")

        server.fault = away
        return await RecordingWaits(bounded(server)).wait(accepted_unit())

    assert run_in_virtual_time(wait())


def test_however_many_wait_for_a_stack_one_asks() -> None:
    async def ask(count: int) -> int:
        server = ApiServer()
        asyncio.get_running_loop().call_later(3.0, put, server, record())
        waits = RecordingWaits(bounded(server))
        assert all(await asyncio.gather(*(waits.wait(accepted_unit()) for _ in range(count))))
        return len(server.requests)

    assert run_in_virtual_time(ask(WAITING_LIMIT)) == run_in_virtual_time(ask(1))


def test_beyond_the_limit_nobody_waits() -> None:
    async def crowd() -> int:
        waits = RecordingWaits(bounded(ApiServer()))
        units = [accepted_unit() for _ in range(WAITING_LIMIT + 2)]
        for number, unit in enumerate(units):
            unit["metadata"]["uid"] = f"uid-{number}"
        done, _ = await asyncio.wait({asyncio.create_task(waits.wait(unit)) for unit in units}, timeout=1.0)
        return len(done)

    assert run_in_virtual_time(crowd()) == 2


# previews


async def test_a_preview_is_recorded_and_found_by_its_operation_id() -> None:
    client = bounded(ApiServer())
    asked = await accept_preview(client, ALICE, accepted_unit(), "team/ci 7")
    assert asked.is_new
    assert asked.preview.to_json() == {
        "operationID": "team/ci 7",
        "unit": "demo",
        "phase": "Pending",
        "createdAt": "2030-01-01T12:00:00Z",
    }
    assert await get_preview(client, ALICE, "demo", "team/ci 7") == asked.preview


async def test_a_preview_without_an_operation_id_gets_one_of_its_own() -> None:
    client = bounded(ApiServer())
    ids = {(await accept_preview(client, ALICE, accepted_unit(), None)).preview.operation_id for _ in range(2)}
    assert len(ids) == 2
    for operation_id in ids:
        assert (await get_preview(client, ALICE, "demo", operation_id)).operation_id == operation_id


async def test_a_preview_that_is_asked_for_again_is_the_same() -> None:
    client = bounded(ApiServer())
    first = await accept_preview(client, ALICE, accepted_unit(), "again")
    second = await accept_preview(client, ALICE, accepted_unit(), "again")
    assert (second.is_new, second.preview) == (False, first.preview)


@pytest.mark.parametrize("other", [accepted_unit("other"), {**accepted_unit(), "metadata": {"uid": "later"}}])
async def test_an_operation_id_of_another_units_preview_is_a_conflict(other: Json) -> None:
    client = bounded(ApiServer())
    await accept_preview(client, ALICE, accepted_unit(), "used")
    unit = {**other, "metadata": {**accepted_unit()["metadata"], **other["metadata"]}}
    with pytest.raises(ApiError) as refused:
        await accept_preview(client, ALICE, unit, "used")
    assert (refused.value.status, refused.value.code) == (409, "operation_conflict")


async def test_a_unit_that_is_on_its_way_out_is_not_previewed() -> None:
    unit = accepted_unit()
    unit["metadata"]["deletionTimestamp"] = NOW.isoformat()
    server = ApiServer()
    with pytest.raises(ApiError) as refused:
        await accept_preview(bounded(server), ALICE, unit, None)
    assert (refused.value.status, server.requests) == (409, [])


@pytest.mark.parametrize(("unit", "operation_id"), [("demo", "never asked"), ("other", "asked")])
async def test_a_preview_that_nobody_asked_for_is_not_found(unit: str, operation_id: str) -> None:
    client = bounded(ApiServer())
    await accept_preview(client, ALICE, accepted_unit(), "asked")
    with pytest.raises(ApiError) as refused:
        await get_preview(client, ALICE, unit, operation_id)
    assert (refused.value.status, refused.value.code) == (404, "preview_not_found")


async def test_another_request_is_no_preview() -> None:
    server = ApiServer()
    operation = build_preview(ALICE, accepted_unit(), "rent")
    path = OPERATIONS.item(operation_name("default", "rent"), ALICE.namespace)
    server.store.objects[path] = {**operation, "spec": {**operation["spec"], "kind": "CreateUnit"}}
    with pytest.raises(ApiError) as refused:
        await get_preview(bounded(server), ALICE, "demo", "rent")
    assert refused.value.code == "preview_not_found"


def test_a_preview_at_its_end_shows_what_it_found() -> None:
    change = {"path": "spec.image", "kind": "update", "old": "example/edited", "new": "example/train"}
    step = {"op": "update", "resource": "demo", "type": "gpuplatform:index:GpuUnit", "properties": [change]}
    operation = build_preview(ALICE, accepted_unit(), "seen")
    operation["metadata"]["creationTimestamp"] = NOW.isoformat()
    operation["status"] = {
        "phase": "Succeeded",
        "finishedAt": NOW.isoformat(),
        "expiresAt": (NOW + PREVIEW_RETENTION).isoformat(),
        "result": {"changes": {"update": 1, "same": 1}, "steps": [step]},
    }
    view = preview_view_of(operation).to_json()
    assert (view["phase"], view["changes"], view["steps"]) == ("Succeeded", {"update": 1, "same": 1}, [step])
