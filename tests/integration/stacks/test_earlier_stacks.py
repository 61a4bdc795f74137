"""Objects that version 0.1.0 recorded: after an upgrade their stacks say what is there, and a restore brings them back.

The tests stand in the order of the story: the cluster has everything, then only the Operations and the Pulumi state.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.stacks import StackAddress, parse_address
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_SPECS, LEASES, OPERATIONS
from gpu_platform.store.stack_leases import PATHS, find_record
from stacks.runner.backend import shard_of
from tests.support.api import UNITS, code_of
from tests.support.clusters import RunningCluster
from tests.support.daemons import Daemon
from tests.support.earlier_version import EARLIER_STACKS
from tests.support.functions import FUNCTIONS
from tests.support.operator_api import POOLS, remove
from tests.support.restore import restore
from tests.support.stack_workers import StackPlace, clear_index, read_metrics, stack_worker, wait_idle
from tests.support.storages import STORAGES
from tests.support.units_and_stock import ensure_spec, find
from tests.support.units_api import spec_body
from tests.support.waiting import NotYet, eventually

SPEC = "earlier.0"
COLLECTIONS = {"pool": POOLS, "storage": STORAGES, "function": FUNCTIONS, "unit": UNITS, "serverless unit": UNITS}
OTHER_REQUESTS: dict[str, Json] = {
    "pool": {"replicas": 1},
    "storage": {"size": "2Gi"},
    "function": {"image": "example/other"},
    "unit": {"image": "example/other"},
    "serverless unit": {"image": "example/other"},
}


def address_of(case: Json) -> StackAddress:
    address = parse_address(*case["stack"].split("/"))
    assert address is not None
    return address


def item_path(address: StackAddress) -> str:
    return PATHS[address.kind].item(address.name, address.namespace)


STACKS = {address_of(case) for case in EARLIER_STACKS.values()}


@pytest.fixture(scope="module")
async def place(kube: KubeClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StackPlace]:
    """The cluster has all that version 0.1.0 wrote, and the backend its states."""
    place = StackPlace(tmp_path_factory.mktemp("earlier"))
    await clear_index(kube)
    await ensure_spec(kube, spec_body(SPEC, cpu="10m", memory="16Mi", gpu=0))
    for case in EARLIER_STACKS.values():
        await put_back(kube, place, case)
    yield place
    for address in sorted(STACKS, reverse=True, key=lambda each: each.full_name):
        await delete_object(kube, address)
    for case in EARLIER_STACKS.values():
        metadata = case["operation"]["metadata"]
        await remove(kube, OPERATIONS.item(metadata["name"], metadata["namespace"]))
    await clear_index(kube)
    await remove(kube, GPU_SPECS.item(SPEC))


async def put_back(kube: KubeClient, place: StackPlace, case: Json) -> None:
    """The API server gives the object another uid: the records name that one."""
    address = address_of(case)
    made = await kube.create(PATHS[address.kind].collection(address.namespace), case["object"])
    here = json.loads(json.dumps(case).replace(case["object"]["metadata"]["uid"], made["metadata"]["uid"]))
    operation = here["operation"]
    await kube.create(OPERATIONS.collection(address.namespace), operation)
    path = OPERATIONS.item(operation["metadata"]["name"], address.namespace, "status")
    await kube.patch(path, {"status": operation["status"]})
    await kube.create(LEASES.collection(names.SYSTEM_NAMESPACE), here["lease"])
    state = stack_state(place, address)
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps(here["checkpoint"]))


def stack_state(place: StackPlace, address: StackAddress) -> Path:
    shard = place.backend / shard_of(address.stack)
    return shard / ".pulumi" / "stacks" / address.project / f"{address.stack}.json"


async def delete_object(kube: KubeClient, address: StackAddress) -> None:
    await remove(kube, item_path(address))

    async def is_gone() -> bool:
        return await find(kube, item_path(address)) is None

    await eventually(is_gone)


async def expect_quiet(worker: Daemon) -> None:
    """Pulumi has compared each stack with the cluster and found them equal; the worker had none to record."""

    async def are_compared() -> bool | NotYet:
        same = (await read_metrics(worker)).get('audits_total{result="same"}', 0)
        return same >= len(STACKS) or NotYet(worker.entries()[-5:])

    await worker.says("worker.started")
    await eventually(are_compared)
    await wait_idle(worker)
    ours = {address.lease for address in STACKS}
    told = [(each["message"], each["stack"]) for each in worker.entries() if each.get("stack") in ours]
    assert told == []


async def expect_replays(api: httpx.AsyncClient, kube: KubeClient) -> None:
    for name, case in EARLIER_STACKS.items():
        uid = (await kube.get(item_path(address_of(case))))["metadata"]["uid"]
        replay = await api.post(COLLECTIONS[name], json=case["body"])
        assert replay.status_code == 200, replay.text
        other = await api.post(COLLECTIONS[name], json={**case["body"], **OTHER_REQUESTS[name]})
        assert (other.status_code, code_of(other)) == (409, "operation_conflict"), other.text
        shown = (await api.get(f"{COLLECTIONS[name]}/{case['body']['name']}/stack")).json()["data"]
        assert shown["recorded"] is True
        assert shown["acceptedHash"] == shown["recordedHash"] == case["acceptedHash"]
        item = await kube.get(item_path(address_of(case)))
        assert item["metadata"]["uid"] == uid
        assert item["spec"] == case["object"]["spec"]


async def test_after_an_upgrade_their_stacks_are_recorded_and_their_requests_replay(
    cluster: RunningCluster, kube: KubeClient, api: httpx.AsyncClient, place: StackPlace
) -> None:
    async with stack_worker(cluster, place, settings={"AUDIT_PERIOD_SECONDS": "5"}) as worker:
        await expect_quiet(worker)
        await expect_replays(api, kube)
        for case in EARLIER_STACKS.values():
            item = await kube.get(item_path(address_of(case)))
            assert item["metadata"]["generation"] == 1


async def test_lost_they_are_restored_from_their_states(
    cluster: RunningCluster, kube: KubeClient, api: httpx.AsyncClient, place: StackPlace
) -> None:
    """Their Operations are there still, with the uids of the lost objects."""
    for case in reversed(EARLIER_STACKS.values()):
        await delete_object(kube, address_of(case))
    await clear_index(kube)

    told = await restore(cluster, place, "--json")

    assert told.code == 0, told.output + told.errors
    assert told.results() == {address.full_name: "restored" for address in STACKS}
    for case in EARLIER_STACKS.values():
        address, before = address_of(case), annotations_of(case["object"])
        item, record = await kube.get(item_path(address)), await find_record(kube, address)
        assert record is not None
        assert record.recorded is not None
        for key in (names.ANNOTATION_ACCEPTED_SPEC, names.ANNOTATION_OPERATION_ID, names.ANNOTATION_REQUEST_HASH):
            assert annotations_of(item)[key] == before[key]
        assert record.recorded.accepted_spec == before[names.ANNOTATION_ACCEPTED_SPEC]
        assert record.recorded.request_hash == before[names.ANNOTATION_REQUEST_HASH]
    settings = {"AUDIT_PERIOD_SECONDS": "5"}
    async with stack_worker(cluster, place, name="afterwards", settings=settings) as worker:
        await expect_quiet(worker)
        await expect_replays(api, kube)
