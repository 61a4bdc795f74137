"""Storages over REST: made once, changed as they were seen, prepared anew only when asked, deleted when nobody uses
them. With the parity checks 40, 41, 44, 45."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import DEPLOYMENTS, GPU_STORAGES, OPERATIONS, PERSISTENT_VOLUME_CLAIMS, SERVICES
from tests.support.api import code_of
from tests.support.storages import (
    STORAGES,
    build_storage_request,
    get_storage_view,
    post_storage,
    remove_storage,
    wait_storage_view,
)
from tests.support.tenants import tenant
from tests.support.units_and_stock import INSTANCES, find
from tests.support.waiting import eventually


@pytest.fixture
async def kept(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[Json]:
    yield await post_storage(api, "kept-data")
    await remove_storage(api, kube, "kept-data")


async def stored(kube: KubeClient, name: str) -> Json:
    return await kube.get(GPU_STORAGES.item(name, INSTANCES))


def from_shell(script: str) -> Json:
    return {"fromImage": "none", "command": ["sh", "-c", script]}


async def test_parity_40_a_storage_is_accepted_at_once_and_ready_when_its_claim_is_bound(
    api: httpx.AsyncClient, kube: KubeClient, kept: Json
) -> None:
    assert (kept["name"], kept["namespace"], kept["size"]) == ("kept-data", INSTANCES, "1Gi")
    assert (kept["phase"], kept["mountedBy"]) == ("Pending", [])
    assert (kept["prepareStatus"]["phase"], kept["accessorStatus"]["phase"]) == ("NotRequested", "Disabled")
    assert (kept["operationID"], kept["stack"]) == ("op-storage-kept-data", "gpu-storage/default.kept-data")

    ready = await wait_storage_view(api, "kept-data", "Ready")
    assert (ready["claimName"], ready["capacity"], ready["reason"]) == ("kept-data", "1Gi", "StorageReady")
    claim = await kube.get(PERSISTENT_VOLUME_CLAIMS.item("kept-data", INSTANCES))
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    storage = await stored(kube, "kept-data")
    assert json.loads(storage["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]) == storage["spec"]
    assert names.STORAGE_FINALIZER in storage["metadata"]["finalizers"]
    shown = await api.get(f"{STORAGES}/kept-data")
    assert shown.headers["ETag"] == f'"{storage["metadata"]["uid"]}.1"'
    operation = await kube.get(OPERATIONS.item(operation_name("default", "op-storage-kept-data"), INSTANCES))
    assert operation["spec"]["kind"] == "CreateStorage"
    assert (operation["status"]["phase"], operation["status"]["targetUid"]) == (
        "Succeeded",
        storage["metadata"]["uid"],
    )


async def test_storages_are_listed_page_by_page_and_by_phase(api: httpx.AsyncClient, kube: KubeClient) -> None:
    for name in ("page-1", "page-2", "page-3"):
        await post_storage(api, name, storageClassName="nobody" if name == "page-2" else None)
    for name, phase in (("page-1", "Ready"), ("page-2", "Pending"), ("page-3", "Ready")):
        await wait_storage_view(api, name, phase)
    seen: list[str] = []
    token: str | None = None
    while True:
        page = (await api.get(STORAGES, params={"limit": 2, **({"continue": token} if token else {})})).json()
        assert len(page["data"]) <= 2
        seen += [each["name"] for each in page["data"]]
        token = page.get("continue")
        if token is None:
            break
    assert [name for name in seen if name.startswith("page-")] == ["page-1", "page-2", "page-3"]
    waiting = (await api.get(STORAGES, params={"phase": "Pending"})).json()["data"]
    assert [each["name"] for each in waiting if each["name"].startswith("page-")] == ["page-2"]
    unknown = await api.get(STORAGES, params={"phase": "Sleeping"})
    assert (unknown.status_code, code_of(unknown)) == (400, "invalid_request")
    for name in ("page-1", "page-2", "page-3"):
        await remove_storage(api, kube, name)


@pytest.mark.usefixtures("kept")
async def test_a_replay_answers_200_with_the_same_storage(api: httpx.AsyncClient, kube: KubeClient) -> None:
    before = await stored(kube, "kept-data")
    said_otherwise = dict(reversed(build_storage_request("kept-data", size="1024Mi", accessor={}).items()))
    answers = await asyncio.gather(*(api.post(STORAGES, json=said_otherwise) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["data"]["size"] for answer in answers} == {"1Gi"}
    assert (await stored(kube, "kept-data"))["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.usefixtures("kept")
async def test_parity_41_another_payload_or_a_taken_name_is_a_conflict(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    other = await api.post(STORAGES, json=build_storage_request("kept-data", size="2Gi"))
    assert (other.status_code, code_of(other)) == (409, "operation_conflict")
    taken = await api.post(STORAGES, json=build_storage_request("kept-data") | {"operationID": "another"})
    assert (taken.status_code, code_of(taken)) == (409, "operation_conflict")
    assert "choose another name" in taken.json()["error"]["message"]
    # Nothing was accepted: the operationID is free again.
    assert await find(kube, OPERATIONS.item(operation_name("default", "another"), INSTANCES)) is None


BAD_REQUESTS: dict[str, tuple[Json, str]] = {
    "bad name": ({"name": "Not_A_Name"}, "name"),
    "a dot in the name": ({"name": "a.b"}, "name"),
    "name too long": ({"name": "a" * 41}, "name"),
    "no size": ({"size": None}, "size"),
    "a size that is none": ({"size": "many"}, "size"),
    "nothing": ({"size": "0"}, "size"),
    "less than nothing": ({"size": "-1Gi"}, "size"),
    "a number as size": ({"size": 5}, "size"),
    "a bad class": ({"storageClassName": "Fast Disks"}, "storageClassName"),
    "an unknown field": ({"colour": "red"}, "colour"),
    "two sources": ({"prepare": {"fromImage": "a", "command": ["b"], "fromStorageName": "c"}}, "prepare"),
    "no source": ({"prepare": {}}, "prepare"),
    "an image and nothing to run": ({"prepare": {"fromImage": "a"}}, "prepare.command"),
    "a copy that runs something": ({"prepare": {"fromStorageName": "c", "args": ["b"]}}, "prepare.command"),
    "itself as source": ({"prepare": {"fromStorageName": "bad-request"}}, "prepare.fromStorageName"),
}


@pytest.mark.parametrize("problem", BAD_REQUESTS)
async def test_parity_41_what_cannot_be_is_refused_by_field_and_nothing_is_recorded(
    api: httpx.AsyncClient, kube: KubeClient, problem: str
) -> None:
    fields, field = BAD_REQUESTS[problem]
    answer = await api.post(STORAGES, json=build_storage_request("bad-request") | fields)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == [field]
    assert await find(kube, OPERATIONS.item(operation_name("default", "op-storage-bad-request"), INSTANCES)) is None


async def test_parity_41_a_copy_of_what_is_not_there_is_404(api: httpx.AsyncClient, kube: KubeClient) -> None:
    answer = await api.post(STORAGES, json=build_storage_request("copy", prepare={"fromStorageName": "missing"}))
    assert (answer.status_code, code_of(answer)) == (404, "gpustorage_not_found")
    assert "'missing'" in answer.json()["error"]["message"]
    assert await find(kube, OPERATIONS.item(operation_name("default", "op-storage-copy"), INSTANCES)) is None
    assert await find(kube, GPU_STORAGES.item("copy", INSTANCES)) is None


@pytest.mark.usefixtures("kept")
async def test_parity_45_a_storage_grows_and_does_not_shrink(api: httpx.AsyncClient, kube: KubeClient) -> None:
    await wait_storage_view(api, "kept-data", "Ready")
    etag = (await api.get(f"{STORAGES}/kept-data")).headers["ETag"]
    grown = await api.put(f"{STORAGES}/kept-data", json={"size": "2Gi"}, headers={"If-Match": etag})
    assert (grown.status_code, grown.json()["data"]["size"]) == (200, "2Gi")
    storage = await stored(kube, "kept-data")
    assert json.loads(storage["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC])["size"] == "2Gi"

    async def is_asked_for() -> bool:
        claim = await kube.get(PERSISTENT_VOLUME_CLAIMS.item("kept-data", INSTANCES))
        return bool(claim["spec"]["resources"]["requests"]["storage"] == "2Gi")

    await eventually(is_asked_for)
    late = await api.put(f"{STORAGES}/kept-data", json={"size": "3Gi"}, headers={"If-Match": etag})
    assert (late.status_code, code_of(late)) == (412, "precondition_failed")
    smaller = await api.put(f"{STORAGES}/kept-data", json={"size": "1Gi"})
    assert (smaller.status_code, smaller.json()["error"]["details"][0]["field"]) == (400, "size")
    assert "2Gi" in smaller.json()["error"]["message"]
    same = await api.put(f"{STORAGES}/kept-data", json={"size": "2048Mi"})
    assert (same.status_code, same.headers["ETag"]) == (200, grown.headers["ETag"])
    fixed = await api.put(f"{STORAGES}/kept-data", json={"storageClassName": "fast"})
    assert (fixed.status_code, fixed.json()["error"]["details"][0]["field"]) == (400, "storageClassName")
    assert (await api.put(f"{STORAGES}/missing", json={})).status_code == 404


@pytest.mark.usefixtures("kept")
async def test_parity_45_the_file_browser_is_switched_on_and_off(api: httpx.AsyncClient, kube: KubeClient) -> None:
    await wait_storage_view(api, "kept-data", "Ready")
    on = await api.put(f"{STORAGES}/kept-data", json={"accessor": {"enabled": True}})
    assert (on.status_code, on.json()["data"]["size"]) == (200, "1Gi")
    paths = [each.item(names.accessor_name("kept-data"), INSTANCES) for each in (DEPLOYMENTS, SERVICES)]

    async def are(there: bool) -> bool:
        return all([(await find(kube, path) is not None) is there for path in paths])

    await eventually(lambda: are(there=True))

    async def is_ready() -> bool:
        return bool((await get_storage_view(api, "kept-data"))["accessorStatus"]["phase"] == "Ready")

    await eventually(is_ready)
    off = await api.put(f"{STORAGES}/kept-data", json={"accessor": {"enabled": False}})
    assert off.status_code == 200
    await eventually(lambda: are(there=False))


@pytest.mark.usefixtures("kept")
async def test_what_somebody_let_grow_behind_the_api_is_where_the_next_change_begins(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    """Nobody can put it back: a volume does not shrink."""
    await kube.patch(GPU_STORAGES.item("kept-data", INSTANCES), {"spec": {"size": "3Gi"}})
    smaller = await api.put(f"{STORAGES}/kept-data", json={"size": "2Gi"})
    assert (smaller.status_code, smaller.json()["error"]["details"][0]["field"]) == (400, "size")
    changed = await api.put(f"{STORAGES}/kept-data", json={"retain": True})
    assert (changed.status_code, changed.json()["data"]["size"]) == (200, "3Gi")
    annotations = (await stored(kube, "kept-data"))["metadata"]["annotations"]
    assert json.loads(annotations[names.ANNOTATION_ACCEPTED_SPEC])["size"] == "3Gi"
    assert (await api.put(f"{STORAGES}/kept-data", json={"retain": False})).status_code == 200


@pytest.mark.usefixtures("kept")
async def test_an_edit_behind_the_api_is_put_back(api: httpx.AsyncClient, kube: KubeClient) -> None:
    await kube.patch(GPU_STORAGES.item("kept-data", INSTANCES), {"spec": {"accessor": {"enabled": True}}})

    async def is_back() -> bool:
        return not (await get_storage_view(api, "kept-data"))["accessor"]["enabled"]

    await eventually(is_back)


async def test_parity_44_a_failed_preparation_is_repeated_when_somebody_asks_and_not_before(
    api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    """The script fails until there is a file, as a source that is repaired."""
    repaired = tmp_path / "repaired"
    await post_storage(api, "fragile", prepare=from_shell(f"test -e {repaired}"))
    failed = await wait_storage_view(api, "fragile", "Failed")
    assert (failed["prepareStatus"]["phase"], failed["prepareStatus"]["recoveryPhase"]) == ("Failed", "Required")
    first_job = failed["prepareStatus"]["jobName"]
    repaired.touch()
    again = {"operationID": "op-again"}
    answer = await api.post(f"{STORAGES}/fragile/recover", json=again)
    assert answer.status_code == 200, answer.text
    ready = await wait_storage_view(api, "fragile", "Ready")
    assert (ready["prepareStatus"]["phase"], ready["prepareStatus"]["recoveryPhase"]) == ("Succeeded", "Succeeded")
    assert ready["prepareStatus"]["jobName"] != first_job

    # A replay is answered, and starts nothing.
    replay = await api.post(f"{STORAGES}/fragile/recover", json=again)
    assert (replay.status_code, replay.json()["data"]["prepareStatus"]) == (200, ready["prepareStatus"])
    nonce = (await stored(kube, "fragile"))["metadata"]["annotations"][names.ANNOTATION_RECOVERY_NONCE]
    assert nonce == operation_name("default", "op-again")
    # What has succeeded may hold data by now.
    refused = await api.post(f"{STORAGES}/fragile/recover", json={"operationID": "op-once-more"})
    assert (refused.status_code, code_of(refused)) == (409, "operation_conflict")
    assert await find(kube, OPERATIONS.item(operation_name("default", "op-once-more"), INSTANCES)) is None
    # An operationID is one wish.
    other = await api.post(STORAGES, json=build_storage_request("fragile-2") | again)
    assert (other.status_code, code_of(other)) == (409, "operation_conflict")
    await remove_storage(api, kube, "fragile")


@pytest.mark.usefixtures("kept")
async def test_parity_44_nothing_is_repeated_that_was_not_asked_for(api: httpx.AsyncClient, kube: KubeClient) -> None:
    answer = await api.post(f"{STORAGES}/kept-data/recover", json={"operationID": "op-in-vain"})
    assert (answer.status_code, answer.json()["error"]["details"][0]["field"]) == (400, "prepare")
    assert await find(kube, OPERATIONS.item(operation_name("default", "op-in-vain"), INSTANCES)) is None
    missing = await api.post(f"{STORAGES}/missing/recover", json={"operationID": "op-in-vain"})
    assert (missing.status_code, code_of(missing)) == (404, "gpustorage_not_found")


async def test_a_preparation_that_runs_is_not_repeated(
    api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    await post_storage(api, "slow", prepare=from_shell(f"until test -e {done}; do sleep 0.2; done"))

    async def runs() -> bool:
        return bool((await get_storage_view(api, "slow"))["prepareStatus"]["phase"] == "Running")

    await eventually(runs)
    refused = await api.post(f"{STORAGES}/slow/recover", json={"operationID": "op-too-early"})
    assert (refused.status_code, code_of(refused)) == (409, "operation_conflict")
    done.touch()
    await wait_storage_view(api, "slow", "Ready")
    await remove_storage(api, kube, "slow")


@pytest.mark.usefixtures("kept")
async def test_another_tenant_sees_and_touches_nothing(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with tenant(kube, str(api.base_url), Role.EDITOR) as other:
        assert (await other.api.get(STORAGES)).json()["data"] == []
        touches: list[tuple[str, str, Json | None]] = [
            ("GET", "", None),
            ("GET", "/stack", None),
            ("DELETE", "", None),
            ("PUT", "", {"size": "9Gi"}),
            ("POST", "/recover", {"operationID": "theirs"}),
        ]
        for method, path, body in touches:
            answer = await other.api.request(method, f"{STORAGES}/kept-data{path}", json=body)
            assert (answer.status_code, code_of(answer)) == (404, "gpustorage_not_found"), (method, path)
        copy = await other.api.post(
            STORAGES, json=build_storage_request("copy", prepare={"fromStorageName": "kept-data"})
        )
        assert (copy.status_code, code_of(copy)) == (404, "gpustorage_not_found")
        # The same operationID and name are another storage there.
        assert (await other.api.post(STORAGES, json=build_storage_request("kept-data"))).status_code == 201
        assert (await other.api.get(f"{STORAGES}/kept-data")).json()["data"]["namespace"] == other.namespace
