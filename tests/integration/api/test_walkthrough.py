"""The first walk through the platform with curl and kubectl, command by command, as a reader would type it.

Only the address and the key differ: `$API` stands for the first, `$KEY` for the second.
"""

import asyncio
import json
import os
import subprocess
from typing import Any

import httpx
import pytest

from gpu_platform.domain.stock import seed_pool_name
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import STOCK_POOLS
from tests.support.clusters import RunningCluster
from tests.support.units_and_stock import STOCK, find, wait_pool_available
from tests.support.units_api import remove_unit, wait_unit_view
from tests.support.waiting import eventually

SEED = """curl -s --retry 10 -X POST $API/api/v1/operator/stock-units \
-H "$KEY" -H 'Content-Type: application/json' \
-d '{
"operationID":"stock-g1-demo-001",
"specName":"g1.1",
"memory":"16Gi",
"gpu":1,
"replicas":2
}'"""
CHECK_JOB = 'curl -s --retry 10 -H "$KEY" $API/api/v1/operator/jobs/stock-g1-demo-001'
CONSUME = """curl -s --retry 10 -X POST $API/api/v1/gpu-units \
-H "$KEY" -H 'Content-Type: application/json' \
-d '{
"operationID":"unit-demo-001",
"name":"demo-instance",
"namespace":"runtime-instance",
"specName":"g1.1",
"image":"python:3.12",
"access":{
"primaryPort":"http",
"scheme":"http"
},
"template":{
"command":["python"],
"args":["-m","http.server","8080"],
"ports":[{"name":"http","port":8080}]
}
}'"""
POOL = seed_pool_name("g1.1", "stock-g1-demo-001")


@pytest.fixture
def shell(cluster: RunningCluster) -> Any:
    environment = os.environ | cluster.environment(os.environ["PATH"])
    environment |= {
        "API": cluster.record.platform_url,
        "KEY": f"Authorization: Bearer {cluster.record.api_key}",
        "no_proxy": "127.0.0.1",
    }

    async def run(command: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run, ["bash", "-c", command], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


async def test_stock_is_seeded_and_consumed_as_the_story_tells(
    shell: Any, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    job = json.loads(await shell(SEED))["data"]
    assert (job["id"], job["type"], job["status"]) == ("stock-g1-demo-001", "seed_stock_units", "pending")

    async def has_succeeded() -> bool:
        return bool(json.loads(await shell(CHECK_JOB))["data"]["status"] == "succeeded")

    await eventually(has_succeeded)
    await wait_pool_available(kube, POOL, 2)
    stock = await shell("kubectl get gpuunits -n runtime-stock")
    assert stock.count(POOL) == 2

    unit = json.loads(await shell(CONSUME))["data"]
    assert (unit["name"], unit["memory"], unit["gpu"]) == ("demo-instance", "16Gi", 1)
    view = await wait_unit_view(api, "demo-instance", "Ready")
    assert view["accessURL"] == "http://unit-demo-instance.runtime-instance.svc.cluster.local:8080"

    assert "demo-instance" in await shell("kubectl get gpuunits -n runtime-instance")
    shown = await shell("kubectl get gpuunit demo-instance -n runtime-instance -o yaml")
    assert "runtime.lokiwager.io/source-stock-name" in shown
    assert "serviceName: unit-demo-instance" in shown
    children = await shell("kubectl get deploy,svc,pod -n runtime-instance | grep demo-instance")
    assert [line.split("/")[0] for line in children.splitlines()] == ["deployment.apps", "service", "pod"]

    again = json.loads(await shell(CONSUME))["data"]
    assert again["sourceStockName"] == unit["sourceStockName"]
    await remove_unit(api, kube, "demo-instance")
    assert (await api.delete(f"/api/v1/operator/stockpools/{POOL}")).status_code == 204

    async def is_gone() -> bool:
        return await find(kube, STOCK_POOLS.item(POOL, STOCK)) is None

    await eventually(is_gone)
