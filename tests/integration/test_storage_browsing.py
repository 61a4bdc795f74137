"""The files of a storage, looked at through the platform: a real file browser on the host node behind the real API."""

import httpx

from gpu_platform.adapters.kube import KubeClient
from gpu_platform.domain.tenants import Role
from tests.integration.api import code_of
from tests.integration.conftest import RunningCluster
from tests.integration.storages import change_storage, from_shell, storage, storage_says
from tests.integration.tenants import tenant
from tests.waiting import eventually

BROWSED = "/api/v1/gpu-storages/browsed/proxy"
FILLED = "mkdir /workspace/deep && echo hello > '/workspace/deep/a b'"


async def test_parity_47_a_file_browser_is_reached_through_the_platform_and_says_why_when_it_is_not(
    api: httpx.AsyncClient, kube: KubeClient, cluster: RunningCluster
) -> None:
    unknown = await api.get(f"{BROWSED}/")
    assert (unknown.status_code, code_of(unknown)) == (404, "gpustorage_not_found")
    async with storage(kube, "browsed", prepare=from_shell(FILLED)):
        await storage_says(kube, "browsed", "StorageReady")
        closed = await api.get(f"{BROWSED}/")
        assert (closed.status_code, code_of(closed)) == (503, "not_ready")
        assert "accessor.enabled" in closed.json()["error"]["message"]

        await change_storage(kube, "browsed", accessor={"enabled": True})

        async def is_open() -> bool:
            return (await api.get(f"{BROWSED}/")).status_code == 200

        await eventually(is_open)
        assert 'href="deep/"' in (await api.get(f"{BROWSED}/")).text
        found = await api.get(f"{BROWSED}/deep/a%20b")
        assert (found.status_code, found.text) == (200, "hello\n")
        assert (await api.get(f"{BROWSED}/nothing")).status_code == 404
        assert (await api.put(f"{BROWSED}/deep/new", content=b"x")).status_code == 405
        async with tenant(kube, cluster.record.platform_url, Role.ADMIN) as other:
            foreign = await other.api.get(f"{BROWSED}/")
            assert (foreign.status_code, code_of(foreign)) == (404, "gpustorage_not_found")
