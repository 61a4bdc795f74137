"""An API without keys (`auth: none`) against web pages in the browser of the same user."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import httpx
import pytest

from tests.support.api import UNITS, api_process, code_of, open_api, unit_request, wait_ready
from tests.support.clusters import RunningCluster

NO_KEYS = {"GPU_PLATFORM_API_AUTH": "none", "GPU_PLATFORM_API_PUBLIC_URL": "https://gpu.example"}
REBOUND = {"Host": "evil.example:8080"}
FOREIGN = {"Origin": "https://evil.example"}


@pytest.fixture(name="open_to_all", scope="module")
async def start_without_keys(
    cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    log: Path = tmp_path_factory.mktemp("api") / "log"
    async with api_process(cluster.api_kubeconfig, log, NO_KEYS) as (_, url), open_api(url, None) as api:
        await wait_ready(api)
        yield api


async def test_programs_and_the_apis_own_page_are_served(open_to_all: httpx.AsyncClient) -> None:
    port = open_to_all.base_url.port
    for headers in (
        {},
        {"Origin": str(open_to_all.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"},
        {"Host": f"localhost:{port}", "Sec-Fetch-Site": "none"},
        {"Host": "gpu.example", "Origin": "https://gpu.example"},
    ):
        assert (await open_to_all.get(UNITS, headers=headers)).status_code == 200, headers


@pytest.mark.parametrize("path", [UNITS, "/api/v1/health", "/openapi.json", "/docs", "/nowhere"])
async def test_a_page_whose_name_was_pointed_to_this_machine_reads_nothing(
    open_to_all: httpx.AsyncClient, path: str
) -> None:
    answer = await open_to_all.get(path, headers=REBOUND)
    assert (answer.status_code, code_of(answer)) == (421, "misdirected_request")
    assert 'Host is "evil.example:8080"' in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [REBOUND, FOREIGN, {"Origin": "null"}, {"Origin": "http://localhost:3000"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=["rebound", "foreign", "sandboxed", "another port", "cross-site"],
)
async def test_a_page_of_another_site_creates_nothing(open_to_all: httpx.AsyncClient, headers: dict[str, str]) -> None:
    """As a form would: without asking first, and as plain text."""
    request = unit_request(f"forged-{secrets.token_hex(3)}", running=False)
    answer = await open_to_all.post(UNITS, json=request, headers={**headers, "Content-Type": "text/plain"})
    assert (answer.status_code, code_of(answer)) in ((421, "misdirected_request"), (403, "forbidden"))
    assert (await open_to_all.get(f"{UNITS}/{request['name']}")).status_code == 404


async def test_a_websocket_of_a_foreign_page_is_refused_before_the_unit_is_looked_for(
    open_to_all: httpx.AsyncClient,
) -> None:
    url = str(open_to_all.base_url.join(f"{UNITS}/missing/proxy/http/ws"))
    statuses = {}
    async with aiohttp.ClientSession() as session:
        for name, headers in (("program", {}), ("foreign", FOREIGN), ("rebound", REBOUND)):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(url, headers=headers)
            statuses[name] = refused.value.status
    assert statuses == {"program": 404, "foreign": 403, "rebound": 421}


async def test_with_keys_the_name_of_the_host_is_the_operators_affair(
    cluster: RunningCluster, api: httpx.AsyncClient
) -> None:
    del cluster
    assert (await api.get(UNITS, headers={**REBOUND, **FOREIGN})).status_code == 200
