"""What the API shows of the platform itself: health, inventory, catalogue, figures; and to whom."""

from collections import Counter
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS
from tests.support.api import add_key, api_process, code_of, open_api, probe, remove_key, scrape, wait_ready
from tests.support.clusters import GPUS, NODES, RunningCluster
from tests.support.operator_api import POOLS, STOCK_UNITS, new_id, seed_request
from tests.support.tcp_proxy import TcpProxy, write_kubeconfig_through
from tests.support.units_and_stock import STOCK, stock_of, stock_pool
from tests.support.waiting import eventually
from tests.unit.platform_api.health.test_collector import NAMES

HEALTH = "/api/v1/health"
INVENTORY = "/api/v1/operator/inventory"
SPECS = "/api/v1/operator/specs"


async def test_parity_3_health_counts_nodes_gpus_and_units(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with stock_pool(kube, f"h-{new_id()}", 2):

        async def counted() -> Json | None:
            """Other tests' stock may be on its way out."""
            there = len((await kube.get(GPU_UNITS.collection(STOCK)))["items"])
            health: Json = (await api.get(HEALTH)).json()["data"]
            return health if health["stockUnitCount"] == there >= 2 else None

        health = await eventually(counted)

    assert health["kubernetesConnected"] is True
    assert (health["nodeCount"], health["readyNodeCount"]) == (NODES + 1, NODES + 1)
    assert health["totalGPUCapacity"] >= NODES * GPUS
    products = {each["product"]: each for each in health["gpuProducts"]}
    assert products["NVIDIA-H100-80GB-HBM3"] == {
        "product": "NVIDIA-H100-80GB-HBM3",
        "nodeCount": 1,
        "capacity": GPUS,
        "allocatable": GPUS,
    }
    assert "kubeError" not in health


async def test_the_inventory_says_where_the_gpus_are(api: httpx.AsyncClient, kube: KubeClient) -> None:
    pool = f"i-{new_id()}"
    async with stock_pool(kube, pool, 3):
        places = Counter(unit["status"]["nodeName"] for unit in await stock_of(kube, pool))

        async def counted() -> Json | None:
            """Its pools, specs and nodes are counted from what came by different ways."""
            inventory: Json = (await api.get(INVENTORY)).json()["data"]
            available = {each["name"]: each["available"] for each in inventory["pools"]}
            free = {each["specName"]: each["available"] for each in inventory["specs"]}
            used = {node["name"]: node["used"] for node in inventory["nodes"]}
            is_full = available.get(pool) == 3 and free["g1.1"] >= 3
            return inventory if is_full and all(used[node] >= count for node, count in places.items()) else None

        inventory = await eventually(counted)

    assert places.total() == 3
    assert inventory["kubernetesConnected"] is True
    assert inventory["nodeCount"] == len(inventory["nodes"]) == NODES + 1
    assert all(node["used"] <= node["allocatable"] for node in inventory["nodes"])


async def test_the_catalogue_is_shown_to_tenants_and_operators(api: httpx.AsyncClient) -> None:
    [spec] = [each for each in (await api.get(SPECS)).json()["data"] if each["name"] == "g1.1"]
    assert (await api.get(f"{SPECS}/g1.1")).json()["data"] == spec
    assert (spec["memory"], spec["gpu"], spec["cpu"], spec["pricePerHour"]) == ("16Gi", 1, "4", "1.20")
    missing = await api.get(f"{SPECS}/nothing")
    assert (missing.status_code, code_of(missing)) == (404, "spec_not_found")


async def test_stock_and_figures_are_for_operators_and_the_catalogue_for_viewers_too(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    key = await add_key(kube, "default", Role.EDITOR)
    try:
        async with open_api(str(api.base_url), key) as tenant:

            async def is_known() -> bool:
                return (await tenant.get(SPECS)).status_code == 200

            await eventually(is_known)
            for path in (STOCK_UNITS, POOLS, INVENTORY, "/api/v1/operator/jobs"):
                answer = await tenant.get(path)
                assert (answer.status_code, code_of(answer)) == (403, "forbidden")
            # What is wrong with a request is nobody's business who may not send it.
            answer = await tenant.post(STOCK_UNITS, json={"nonsense": True})
            assert answer.status_code == 403
    finally:
        await remove_key(kube, key)


@pytest.mark.parametrize("path", [STOCK_UNITS, POOLS, INVENTORY, SPECS, "/api/v1/operator/jobs"])
async def test_nothing_is_shown_without_a_key_but_health(api: httpx.AsyncClient, path: str) -> None:
    async with open_api(str(api.base_url), None) as stranger:
        answer = await stranger.get(path, params={"state": "sold"})
        assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
        assert (await stranger.get(HEALTH)).status_code == 200


async def test_parity_67_every_figure_is_exported(api: httpx.AsyncClient) -> None:
    lines = (await scrape(api)).splitlines()

    announced = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert set(NAMES) <= announced
    assert "runtime_metrics_scrape_success 1.0" in lines
    assert f"runtime_kubernetes_nodes_ready {NODES + 1}.0" in lines


async def test_parity_67_with_kubernetes_frozen_health_figures_and_refusals_come_all_the_same(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    async with TcpProxy(cluster.record.ports["kube-apiserver"]) as proxy:
        kubeconfig = write_kubeconfig_through(proxy, cluster.kubeconfig, tmp_path / "kubeconfig")
        settings = {"GPU_PLATFORM_API_REPORT_INTERVAL_SECONDS": "5"}
        async with (
            api_process(kubeconfig, tmp_path / "api.log", settings) as (daemon, url),
            open_api(url, cluster.record.api_key, patience=0) as api,
        ):
            await wait_ready(api)
            proxy.freeze()

            async def is_noticed() -> Json | None:
                health: Json = (await api.get(HEALTH)).json()["data"]
                return health if health["kubernetesConnected"] is False else None

            health = await eventually(is_noticed)
            assert health["kubeError"]
            assert health["nodeCount"] == NODES + 1
            assert any(sentence.startswith("Kubernetes cannot be used") for sentence in health["degraded"])
            unready = await probe(api, "/readyz")
            assert unready.status_code == 503
            assert unready.text.startswith("Kubernetes does not answer")
            assert "runtime_metrics_scrape_success 0.0" in (await scrape(api)).splitlines()
            refused = await api.post(STOCK_UNITS, json=seed_request(new_id()))
            assert (refused.status_code, code_of(refused)) == (503, "service_unavailable")

            proxy.thaw()
            await wait_ready(api)
            requests = [entry for entry in daemon.entries() if entry["message"] == "request"]
            assert {entry["path"] for entry in requests} == {HEALTH, STOCK_UNITS}
            report = await daemon.says("runtime status")
            assert set(report) >= {"health", "stock", "units"}
