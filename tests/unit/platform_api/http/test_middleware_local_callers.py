"""Which requests an API without keys refuses: those of web pages."""

import pytest

from platform_api.http.middleware import check_local_caller

PUBLIC = "https://gpu.example/api"


def status_of(public_url: str | None = None, **headers: str) -> int | None:
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    refusal = check_local_caller(given, public_url)
    return refusal.status if refusal else None


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "127.28.0.3", "localhost", "LOCALHOST:9000", "[::1]:8080"])
def test_a_program_on_this_machine_passes(host: str) -> None:
    assert status_of(host=host) is None
    assert status_of(host=host, origin=f"http://{host}") is None
    assert status_of(host=host, sec_fetch_site="same-origin") is None
    assert status_of(host=host, sec_fetch_site="none") is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example:8080",
        "localhost.evil.example",
        "192.0.2.1",
        "127.0.0.1@evil.example",
        "[::1",
        "",
    ],
)
def test_a_name_that_was_pointed_to_this_machine_is_a_421(host: str) -> None:
    assert status_of(host=host) == 421
    assert status_of(host=host, origin=f"http://{host}", sec_fetch_site="same-origin") == 421


def test_a_request_without_a_host_or_with_two_is_a_421() -> None:
    assert status_of() == 421
    refusal = check_local_caller([(b"host", b"localhost"), (b"Host", b"evil.example")], None)
    assert refusal is not None
    assert refusal.status == 421


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:3000",
        "http://127.0.0.1",
        "http://127.0.0.1:8080.evil.example",
        "ftp://127.0.0.1:8080",
        "",
    ],
)
def test_a_page_of_another_origin_is_a_403(origin: str) -> None:
    assert status_of(host="127.0.0.1:8080", origin=origin) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_a_link_or_an_image_on_a_page_of_another_origin_is_a_403(site: str) -> None:
    assert status_of(host="127.0.0.1:8080", sec_fetch_site=site) == 403


def test_the_host_of_the_public_url_passes_with_its_own_pages() -> None:
    assert status_of(PUBLIC, host="gpu.example") is None
    assert status_of(PUBLIC, host="gpu.example", origin="https://gpu.example") is None
    assert status_of(PUBLIC, host="127.0.0.1:8080", origin="https://gpu.example") is None
    assert status_of(PUBLIC, host="gpu.example", origin="https://other.example") == 403
    assert status_of(PUBLIC, host="other.example") == 421


def test_the_refusal_names_the_value_and_what_to_do() -> None:
    refusal = check_local_caller([(b"host", b"evil.example")], None)
    assert refusal is not None
    assert refusal.message.startswith('Host is "evil.example": ')
    assert refusal.message.endswith("or set auth: keys")
