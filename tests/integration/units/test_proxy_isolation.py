"""Units behind one origin: what a unit says to a browser or to a cache does not reach other units or other callers."""

import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.kube import KubeClient
from tests.support.api import UNITS, open_api
from tests.support.clusters import RunningCluster
from tests.support.units_and_stock import create_unit, delete_unit, unit_body, wait_unit_phase
from tests.support.waiting import NotYet, eventually

PROGRAM = str(Path(__file__).parents[2] / "support" / "upstream_server.py")
TEMPLATE = {
    "command": [sys.executable, "-P", PROGRAM, "$(POD_IP)", "8000"],
    "ports": [{"name": "http", "port": 8000}],
    "probes": {"readiness": {"http": {"path": "/hanging", "port": "http"}, "periodSeconds": 1}},
}
SESSION = ("Set-Cookie", "session=secret; Path=/; HttpOnly")


@asynccontextmanager
async def called_unit(kube: KubeClient, api: httpx.AsyncClient, **spec: Any) -> AsyncIterator[str]:
    """The path under which a new unit is called."""
    name = f"called-{secrets.token_hex(3)}"
    path = f"{UNITS}/{name}/proxy/http"
    await create_unit(kube, unit_body(name, specName="host.1", template=TEMPLATE, **spec))
    try:
        await wait_unit_phase(kube, name, "Ready")

        async def answers() -> bool | NotYet:
            answer = await api.get(f"{path}/say")
            return answer.status_code == 200 or NotYet(answer.text)

        await eventually(answers)
        yield path
    finally:
        await delete_unit(kube, name)


@pytest.fixture(name="two", scope="module")
async def make_two(kube: KubeClient, api: httpx.AsyncClient) -> AsyncIterator[tuple[str, str]]:
    """One unit that is private, and one that is public."""
    async with AsyncExitStack() as stack:
        private = await stack.enter_async_context(called_unit(kube, api))
        public = await stack.enter_async_context(called_unit(kube, api, access={"public": True}))
        yield private, public


@pytest.fixture(name="browser")
async def open_browser(cluster: RunningCluster) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a jar of cookies of its own."""
    async with open_api(cluster.record.platform_url, cluster.record.api_key) as browser:
        yield browser


async def say(browser: httpx.AsyncClient, unit: str, *headers: tuple[str, str]) -> httpx.Response:
    """Lets the unit answer with these headers; its answer has the cookies that it got."""
    answer = await browser.get(f"{unit}/say", params=list(headers))
    assert answer.status_code == 200, answer.text
    return answer


async def test_a_cookie_that_a_unit_sets_for_the_whole_origin_comes_back_to_that_unit_only(
    browser: httpx.AsyncClient, two: tuple[str, str]
) -> None:
    one, other = two
    answer = await say(browser, one, SESSION)

    assert answer.headers["set-cookie"] == f"session=secret; HttpOnly; Path={one}/"
    assert (await say(browser, one)).json() == {"cookie": "session=secret"}
    assert (await say(browser, other)).json() == {"cookie": ""}


async def test_a_unit_cannot_set_a_cookie_for_another_one(browser: httpx.AsyncClient, two: tuple[str, str]) -> None:
    one, other = two
    answer = await say(
        browser,
        one,
        ("Set-Cookie", f"session=forged; Path={other}/"),
        ("Set-Cookie", f"session=forged; Path={one}/; Path={other}/; Domain=127.0.0.1"),
        ("Set-Cookie", "__Host-session=forged; Path=/; Secure"),
    )

    assert answer.headers.get_list("set-cookie") == [f"session=forged; Path={one}{other}/"] * 2
    assert (await say(browser, other)).json() == {"cookie": ""}


async def test_a_cookie_of_what_is_in_front_of_the_platform_does_not_reach_a_unit(
    browser: httpx.AsyncClient, two: tuple[str, str]
) -> None:
    answer = await browser.get(f"{two[0]}/say", headers={"Cookie": "__Host-login=secret; own=1"})

    assert answer.json() == {"cookie": "own=1"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, "private, no-store"),
        ("max-age=60", "private, max-age=60"),
        ("public, s-maxage=600, max-age=60", "private, max-age=60"),
    ],
    ids=["nothing", "max-age", "public"],
)
async def test_no_shared_cache_keeps_the_answer_of_a_private_unit(
    browser: httpx.AsyncClient, two: tuple[str, str], said: str | None, expected: str
) -> None:
    headers = [("Cache-Control", said)] if said else []
    answer = await say(browser, two[0], *headers, ("CDN-Cache-Control", "max-age=600"), ("Vary", "Accept-Encoding"))

    assert answer.headers.get_list("cache-control") == [expected]
    assert answer.headers["vary"] == "Accept-Encoding, Authorization"
    assert "cdn-cache-control" not in answer.headers


async def test_a_public_unit_may_be_kept_but_apart_for_each_key(
    browser: httpx.AsyncClient, two: tuple[str, str]
) -> None:
    answer = await say(browser, two[1], ("Cache-Control", "public, max-age=60"))

    assert answer.headers["cache-control"] == "public, max-age=60"
    assert answer.headers["vary"] == "Authorization"
