"""The files of a storage, looked at through the platform: a real file browser on the host node behind the real API."""

import httpx

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from tests.support.api import code_of
from tests.support.clusters import RunningCluster
from tests.support.storages import (
    change_storage,
    directory_of,
    expect_pvc_deleted,
    from_shell,
    jobs_of,
    storage_object,
    wait_storage_reason,
)
from tests.support.tenants import tenant
from tests.support.waiting import NotYet, eventually

BROWSED = "/api/v1/gpu-storages/browsed/proxy"
FILLED = "mkdir /workspace/deep && echo hello > '/workspace/deep/a b' && ln -s /etc/passwd /workspace/out"


async def test_parity_47_a_file_browser_is_reached_through_the_platform_and_says_why_when_it_is_not(
    api: httpx.AsyncClient, kube: KubeClient, cluster: RunningCluster
) -> None:
    unknown = await api.get(f"{BROWSED}/")
    assert (unknown.status_code, code_of(unknown)) == (404, "gpustorage_not_found")
    async with storage_object(kube, "browsed", prepare=from_shell(FILLED)):
        await wait_storage_reason(kube, "browsed", "StorageReady")
        closed = await api.get(f"{BROWSED}/")
        assert (closed.status_code, code_of(closed)) == (503, "not_ready")
        assert "accessor.enabled" in closed.json()["error"]["message"]

        assert "proxyURL" not in await view(api)
        await change_storage(kube, "browsed", accessor={"enabled": True})

        async def is_open() -> bool:
            return (await api.get(f"{BROWSED}/")).status_code == 200

        await eventually(is_open)

        async def is_shown() -> bool:
            return "accessURL" in (await view(api))["accessorStatus"]

        await eventually(is_shown)
        assert (await api.get((await view(api))["proxyURL"])).status_code == 200
        assert 'href="./deep/"' in (await api.get(f"{BROWSED}/")).text
        below = await api.get(f"{BROWSED}/deep", follow_redirects=True)
        assert (str(below.url.path), below.status_code) == (f"{BROWSED}/deep/", 200)
        outside = await api.get(f"{BROWSED}/out")
        assert (outside.status_code, "root:" in outside.text) == (403, False)
        found = await api.get(f"{BROWSED}/deep/a%20b")
        assert (found.status_code, found.text) == (200, "hello\n")
        assert (await api.get(f"{BROWSED}/nothing")).status_code == 404
        assert (await api.put(f"{BROWSED}/deep/new", content=b"x")).status_code == 405
        async with tenant(kube, cluster.record.platform_url, Role.EDITOR) as other:
            foreign = await other.api.get(f"{BROWSED}/")
            assert (foreign.status_code, code_of(foreign)) == (404, "gpustorage_not_found")


async def test_a_preparation_that_fails_can_be_read_and_its_events_tell_why(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    place = "/api/v1/gpu-storages/unread"
    assert (
        code_of(await api.get(f"{place}/logs")) == code_of(await api.get(f"{place}/events")) == "gpustorage_not_found"
    )
    script = "echo fetching; echo no such model >&2; exit 3"
    async with storage_object(kube, "unread", prepare=from_shell(script)):
        await wait_storage_reason(kube, "unread", "StoragePrepareFailed")
        read = await api.get(f"{place}/logs")
        assert (read.status_code, read.text) == (200, "fetching\nno such model\n")
        assert (await api.get(f"{place}/logs", params={"tail": 1})).text == "no such model\n"

        unopened = await api.get(f"{place}/logs", params={"of": "browser"})
        assert (unopened.status_code, code_of(unopened)) == (409, "operation_conflict")
        assert "the browser of the storage 'unread' has no logs" in unopened.json()["error"]["message"]
        wrong = await api.get(f"{place}/logs", params={"of": "somebody"})
        assert wrong.json()["error"]["details"][0]["field"] == "of"

        async def are_told() -> bool | NotYet:
            """Events are written after what they tell of."""
            happened = (await api.get(f"{place}/events")).json()["data"]
            told = {(event["object"].partition("/")[0], event["reason"]) for event in happened}
            is_complete = wanted <= told and "PersistentVolumeClaim" in {kind for kind, _ in told}
            return is_complete or NotYet(told)

        wanted = {("GPUStorage", "StoragePrepareFailed"), ("Job", "SuccessfulCreate"), ("Pod", "Scheduled")}
        await eventually(are_told)


async def test_a_copy_that_fails_can_be_read_and_holds_up_nobody(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with storage_object(kube, "unread-copy", prepare={"fromStorageName": "unread-source"}):
        await wait_storage_reason(kube, "unread-copy", "StoragePreparePending")
        (await directory_of(kube, "unread-copy") / "in-the-way").touch()
        async with storage_object(kube, "unread-source", prepare=from_shell("mkdir /workspace/in-the-way")):
            await wait_storage_reason(kube, "unread-copy", "StoragePrepareFailed")
            # The reconciler looks at it once more.
            await change_storage(kube, "unread-copy", size="2Gi")
            await wait_storage_reason(kube, "unread-copy", "StoragePrepareFailed")
            assert len(await jobs_of(kube, "unread-copy")) == 1
            read = await api.get("/api/v1/gpu-storages/unread-copy/logs")
            assert (read.status_code, "in-the-way" in read.text) == (200, True)
        await expect_pvc_deleted(kube, "unread-source")


async def view(api: httpx.AsyncClient) -> Json:
    data: Json = (await api.get("/api/v1/gpu-storages/browsed")).json()["data"]
    return data
