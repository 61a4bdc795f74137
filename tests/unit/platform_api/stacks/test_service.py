"""Stacks: what is shown of them, and waiting for them."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpu_platform.api_models.stacks import StackView
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import (
    Recorded,
    StackAddress,
    StackKind,
    StackRecord,
    accepted_hash,
    record_annotations,
    record_labels,
)
from gpu_platform.domain.tenants import Role
from gpu_platform.domain.units import GPUUnitSpec, accepted_text
from gpu_platform.kube import UnreachableError
from gpu_platform.kube.paths import LEASES
from platform_api.auth.keys import Caller
from platform_api.gpu_units.views import view_unit as unit_view_of
from platform_api.http.errors import ApiError
from platform_api.kube_health import BoundedClient, Pulse
from platform_api.stacks.service import LONGEST_PAUSE_SECONDS, WAIT_SECONDS, WAITING_LIMIT, RecordingWaits, get_stack
from platform_api.stock.service import view_pool as pool_view_of
from tests.support.builders import NOW, make_pool, make_unit
from tests.support.scripted_kube import StoredObjects
from tests.support.virtual_time import now, run_in_virtual_time

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
        ({names.ANNOTATION_ACCEPTED_SPEC: "nonsense"}, "cannot be read; its Events say why"),
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
    accepted = json.dumps(pool["spec"])
    pool["metadata"] |= {
        "creationTimestamp": NOW.isoformat(),
        "annotations": {names.ANNOTATION_ACCEPTED_SPEC: accepted},
    }
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
