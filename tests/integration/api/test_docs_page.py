"""The page at /docs: where callers paste their keys, so nothing of another host may run on it."""

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from tests.support.api import open_api
from tests.support.clusters import RunningCluster

PAGES = ("/docs", "/swagger/index.html")
ELSEWHERE = re.compile(r"(?i)(?:https?:)?//")


class _Page(HTMLParser):
    """What a page loads, and what runs or styles inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self._is_in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value for name, value in attrs if name in ("src", "href") and value]
        self.inline += [name for name, _ in attrs if name == "style" or name.startswith("on")]
        self._is_in_script = tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if self._is_in_script and data.strip():
            self.inline.append(data)


@pytest.fixture(name="stranger")
async def open_stranger(cluster: RunningCluster) -> AsyncIterator[httpx.AsyncClient]:
    async with open_api(cluster.record.platform_url, None) as stranger:
        yield stranger


def read_policy(answer: httpx.Response) -> dict[str, list[str]]:
    parts = (part.split() for part in answer.headers["content-security-policy"].split(";"))
    return {words[0]: words[1:] for words in parts}


@pytest.mark.parametrize("path", PAGES)
async def test_the_page_loads_only_files_of_this_api_and_has_no_script_inside(
    stranger: httpx.AsyncClient, path: str
) -> None:
    answer = await stranger.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = _Page()
    page.feed(answer.text)

    assert page.inline == []
    assert len(page.loaded) == 4
    assert [each for each in page.loaded if ELSEWHERE.match(each)] == []
    types = {}
    for each in page.loaded:
        loaded = await stranger.get(urljoin(path, each))
        assert (loaded.status_code, loaded.headers["x-content-type-options"]) == (200, "nosniff"), each
        assert loaded.content, each
        types[each.rpartition(".")[2]] = loaded.headers["content-type"].partition(";")[0]
    assert types == {"js": "text/javascript", "css": "text/css", "png": "image/png"}


@pytest.mark.parametrize("path", PAGES)
async def test_a_script_that_was_put_into_the_page_would_not_run(stranger: httpx.AsyncClient, path: str) -> None:
    answer = await stranger.get(path)
    policy = read_policy(answer)

    assert policy["default-src"] == ["'none'"]
    assert policy["script-src"] == ["'self'"]
    assert policy["connect-src"] == ["'self'"]
    assert policy["frame-ancestors"] == ["'none'"]
    assert policy["base-uri"] == policy["form-action"] == ["'none'"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"


async def test_the_page_shows_the_description_of_this_api(stranger: httpx.AsyncClient) -> None:
    start = (await stranger.get("/docs/assets/start.js")).text
    [path] = re.findall(r'url: "([^"]+)"', start)

    assert urlsplit(path).netloc == ""
    assert (await stranger.get(path)).json()["info"]["title"] == "GPU platform"
    assert "SwaggerUIBundle" in (await stranger.get("/docs/assets/swagger-ui-bundle.js")).text


@pytest.mark.parametrize("name", ["redoc.standalone.js", "%2e%2e", "%2e%2e%2f__init__.py", "..%2fcore.py", "nothing"])
async def test_no_other_file_of_the_package_is_served(stranger: httpx.AsyncClient, name: str) -> None:
    answer = await stranger.get(f"/docs/assets/{name}")

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
