"""What holds callers back: failed logins by source, requests by key and tenant; and what a stranger is shown."""

import asyncio
import json
import re
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_FUNCTIONS
from platform_api.auth.access import WRITE_BURST_SECONDS
from tests.support.api import UNITS, api_process, code_of, open_api, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.functions import FUNCTIONS, post_function
from tests.support.tenants import key_of, tenant
from tests.support.units_and_stock import ensure_spec
from tests.support.units_api import SPEC, spec_body

ATTEMPTS = 200
PER_MINUTE = 6
PER_SECOND = 2
KEYS = 3
ANOTHER_SOURCE = "127.0.0.2"
WRITE_BYTES_PER_SECOND = 32 << 10
PADDING = 100_000
WRITES = 40


def wrong_keys(known: str) -> list[dict[str, str]]:
    """Ways to come without a valid key."""
    unknown = f"gk_{'0' * 8}_{'s' * 43}"
    guessed = f"{known[:12]}{'s' * 43}"
    return [{}, *({"Authorization": text} for text in ("Basic YTpi", f"Bearer {unknown}", f"Bearer {guessed}"))]


async def test_failed_logins_are_throttled_per_source_and_valid_keys_are_served(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    key = cluster.record.api_key
    settings = {"GPU_PLATFORM_API_FAILED_LOGINS_PER_MINUTE": str(PER_MINUTE)}
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", settings) as (_, url),
        open_api(url, None) as stranger,
        open_api(url, key) as neighbour,
        httpx.AsyncClient(
            base_url=url, transport=httpx.AsyncHTTPTransport(local_address=ANOTHER_SOURCE, trust_env=False)
        ) as elsewhere,
    ):
        await wait_ready(stranger)
        began_at = time.monotonic()
        ways = wrong_keys(key)
        answers, served = [], []
        for number in range(ATTEMPTS):
            answers.append(await stranger.get(UNITS, headers=ways[number % len(ways)]))
            if number % 10 == 0:
                served.append(await neighbour.get(UNITS))
        elapsed = time.monotonic() - began_at

        codes = Counter((answer.status_code, code_of(answer)) for answer in answers)
        assert set(codes) == {(401, "unauthenticated"), (429, "too_many_requests")}
        assert PER_MINUTE <= codes[401, "unauthenticated"] <= PER_MINUTE + 1 + elapsed * PER_MINUTE / 60
        for answer in answers:
            if answer.status_code == 401:
                assert "RateLimit" not in answer.headers
                continue
            assert 1 <= int(answer.headers["Retry-After"]) <= 60 / PER_MINUTE
            assert answer.headers["RateLimit-Policy"] == f'"failed-logins";q={PER_MINUTE};w=60'
            assert re.fullmatch(r'"failed-logins";r=0;t=\d+', answer.headers["RateLimit"])
        # Others behind the same address are served, and a wrong key from another one is only told so.
        assert {answer.status_code for answer in served} == {200}
        assert (await elsewhere.get(UNITS)).status_code == 401


async def test_the_keys_of_a_tenant_share_its_limit_and_others_are_served(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path
) -> None:
    settings = {
        "GPU_PLATFORM_API_TENANT_LIMITS": f'{{"requestsPerSecond": {PER_SECOND}}}',
        "GPU_PLATFORM_API_FAILED_LOGINS_PER_MINUTE": "1000000",
    }
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(api_process(cluster.api_kubeconfig, tmp_path / "log", settings))
        modest = await stack.enter_async_context(open_api(url, cluster.record.api_key))
        await wait_ready(modest)
        greedy = await stack.enter_async_context(tenant(kube, url, Role.VIEWER))
        clients = [
            (await stack.enter_async_context(key_of(kube, url, greedy.name, Role.VIEWER)))[0] for _ in range(KEYS)
        ]
        began_at = time.monotonic()
        asked = [client.get(f"{UNITS}/none") for client in clients for _ in range(ATTEMPTS // KEYS)]
        answers = await asyncio.gather(*asked)
        most = 2 * PER_SECOND + 1 + PER_SECOND * (time.monotonic() - began_at)

        let_in = [answer for answer in answers if answer.status_code == 404]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(let_in) + len(refused) == len(answers)
        assert len(let_in) <= most
        assert refused
        for answer in refused:
            assert "this tenant asks faster than its limit" in answer.json()["error"]["message"]
            assert int(answer.headers["Retry-After"]) >= 1
            assert '"tenant";q=4;w=2' in answer.headers["RateLimit-Policy"]
            assert '"tenant";r=0;t=2' in answer.headers["RateLimit"]
        assert (await modest.get(f"{UNITS}/none")).status_code == 404


@pytest.mark.parametrize("is_large", [True, False], ids=["large requests", "small changes of a large function"])
async def test_the_bytes_that_a_tenant_writes_are_limited_and_others_are_served(
    cluster: RunningCluster, kube: KubeClient, tmp_path: Path, is_large: bool
) -> None:
    settings = {"GPU_PLATFORM_API_TENANT_LIMITS": f'{{"writeBytesPerSecond": {WRITE_BYTES_PER_SECOND}}}'}
    await ensure_spec(kube, spec_body(SPEC))
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(api_process(cluster.api_kubeconfig, tmp_path / "log", settings))
        await wait_ready(await stack.enter_async_context(open_api(url, cluster.record.api_key)))
        greedy = await stack.enter_async_context(tenant(kube, url, Role.EDITOR))
        modest = await stack.enter_async_context(tenant(kube, url, Role.EDITOR))
        began_at = time.monotonic()
        view = await post_function(greedy.api, "large", template=build_large("first"))
        size = len(json.dumps(await kube.get(GPU_FUNCTIONS.item("large", greedy.namespace))))
        assert size > 2 * PADDING, view
        answers = []
        for number in range(WRITES):
            change = {"template": build_large(str(number))} if is_large else {"image": f"example/words-{number}"}
            answers.append(await greedy.api.put(f"{FUNCTIONS}/large", json=change))
        most = WRITE_BURST_SECONDS * WRITE_BYTES_PER_SECOND + WRITE_BYTES_PER_SECOND * (time.monotonic() - began_at)

        let_in = [answer for answer in answers if answer.status_code == 200]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(let_in) + len(refused) == len(answers)
        # The last one that was let in may cost more than was left.
        assert let_in
        assert len(let_in) * size <= most
        assert len(refused) > len(let_in)
        for answer in refused:
            assert code_of(answer) == "too_many_requests"
            assert "writes more bytes than its limit" in answer.json()["error"]["message"]
            assert int(answer.headers["Retry-After"]) >= 1
            assert f'"tenant-written-bytes";q={32 * WRITE_BYTES_PER_SECOND};w=32' in answer.headers["RateLimit-Policy"]
            assert '"tenant-written-bytes";r=0;t=' in answer.headers["RateLimit"]
        function = await kube.get(GPU_FUNCTIONS.item("large", greedy.namespace))
        assert function["metadata"]["generation"] == len(let_in) + 1
        # Another tenant writes; and the greedy one reads, and gets out.
        await post_function(modest.api, "small")
        assert (await greedy.api.get(f"{FUNCTIONS}/large")).status_code == 200
        assert (await greedy.api.delete(f"{FUNCTIONS}/large")).status_code == 204


def build_large(value: str) -> dict[str, object]:
    return {"envs": [{"name": "PADDING", "value": value + "x" * PADDING}]}


async def test_answers_to_requests_with_a_key_say_what_is_left(cluster: RunningCluster, api: httpx.AsyncClient) -> None:
    for path, status in ((UNITS, 200), (f"{UNITS}/none", 404), ("/api/v1/health", 200)):
        answer = await api.get(path)
        assert answer.status_code == status
        assert answer.headers["RateLimit-Policy"] == '"key";q=1000;w=2, "tenant";q=2000;w=2'
        assert re.fullmatch(r'"key";r=\d+;t=\d, "tenant";r=\d+;t=\d', answer.headers["RateLimit"])
    async with open_api(cluster.record.platform_url, None) as stranger:
        for path in (UNITS, "/api/v1/health"):
            assert "RateLimit" not in (await stranger.get(path)).headers


async def test_health_shows_a_stranger_that_the_api_answers_and_nothing_else(
    cluster: RunningCluster, api: httpx.AsyncClient
) -> None:
    async with open_api(cluster.record.platform_url, None) as stranger:
        answer = await stranger.get("/api/v1/health")
        assert (answer.status_code, answer.json()) == (200, {"data": {"status": "ok"}})
        wrong = await stranger.get("/api/v1/health", headers={"Authorization": "Bearer gk_wrong"})
        assert (wrong.status_code, code_of(wrong)) == (401, "unauthenticated")
    assert (await api.get("/api/v1/health")).json()["data"]["nodeCount"] > 0
