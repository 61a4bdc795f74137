"""Which headers are passed on, and which are not."""

import dataclasses

import pytest

from platform_api.proxy.headers import (
    Header,
    Passage,
    build_answer_headers,
    build_request_headers,
    build_upgrade_headers,
)

PASSAGE = Passage(
    authority="unit-web.runtime-instance.svc.cluster.local:8000",
    prefix="/api/v1/gpu-units/web/proxy/http",
    client="10.1.2.3",
    scheme="https",
    request_id="d3b2bacc0e5c89d0",
    is_upgrade=False,
)
HOST = (b"host", b"platform.example")
KEPT_BY_NO_CACHE = [(b"cache-control", b"private, no-store"), (b"vary", b"Authorization")]


def passed(*given: Header) -> list[Header]:
    """What the unit sees of these, beside what we say ourselves."""
    before = build_request_headers([HOST], PASSAGE)
    return [header for header in build_request_headers([HOST, *given], PASSAGE) if header not in before]


def test_what_we_say_ourselves() -> None:
    assert build_request_headers([HOST], PASSAGE) == [
        (b"host", b"unit-web.runtime-instance.svc.cluster.local:8000"),
        (b"x-forwarded-for", b"10.1.2.3"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-prefix", b"/api/v1/gpu-units/web/proxy/http"),
        (b"x-forwarded-host", b"platform.example"),
        (b"x-request-id", b"d3b2bacc0e5c89d0"),
        (b"connection", b"close"),
    ]


@pytest.mark.parametrize(
    "header",
    [
        (b"accept", b"text/html"),
        (b"accept-encoding", b"gzip"),
        (b"cookie", b"a=b"),
        (b"content-type", b"application/json"),
        (b"content-length", b"12"),
        (b"origin", b"https://platform.example"),
        (b"x-own", b"1"),
        (b"date", b"Tue, 17 Nov 2026 03:00:00 GMT"),
    ],
)
def test_a_header_for_the_unit_is_passed_on(header: Header) -> None:
    assert passed(header) == [header]


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "connection",
        "expect",
        "forwarded",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-prefix",
        "x-forwarded-proto",
        "x-forwarded-user",
        "x-forwarded-client-cert",
        "X_Forwarded_For",
        "x_real_ip",
        "content_length",
        "x-real-ip",
        "x-request-id",
    ],
)
def test_a_header_of_the_connection_or_of_ours_is_not(name: str) -> None:
    assert passed((name.encode(), b"forged")) == []


@pytest.mark.parametrize("listed", [b"close, X-Own", b"x-own", b"keep-alive ,\tx-own , ", b"x_own"])
def test_nor_is_one_that_connection_names(listed: bytes) -> None:
    assert passed((b"connection", listed), (b"x-own", b"1"), (b"x-other", b"2")) == [(b"x-other", b"2")]


def test_two_lines_of_connection_count_both() -> None:
    lines = [(b"connection", b"a"), (b"connection", b"b")]
    assert passed(*lines, (b"a", b"1"), (b"b", b"2"), (b"c", b"3")) == [(b"c", b"3")]


@pytest.mark.parametrize("victim", [b"content-length", b"host", b"x-forwarded-for", b"x-request-id"])
def test_nobody_can_take_away_what_we_say_by_naming_it(victim: bytes) -> None:
    given = [HOST, (b"content-length", b"12"), (b"connection", victim)]
    assert victim in [name for name, _ in build_request_headers(given, PASSAGE)]


def test_a_body_of_unknown_length_comes_in_chunks_whatever_length_is_claimed() -> None:
    given = [(b"transfer-encoding", b"chunked"), (b"content-length", b"3")]
    assert passed(*given) == [(b"transfer-encoding", b"chunked")]


def test_a_header_that_comes_twice_is_passed_on_twice() -> None:
    twice = [(b"accept", b"a"), (b"accept", b"b")]
    assert passed(*twice) == twice


def test_an_upgrade_is_asked_for_in_our_words() -> None:
    given = [
        HOST,
        (b"connection", b"keep-alive, Upgrade"),
        (b"upgrade", b"WebSocket"),
        (b"sec-websocket-key", b"x3JJHMbDL1EzLkh9GBhXDw=="),
    ]
    headers = build_request_headers(given, dataclasses.replace(PASSAGE, is_upgrade=True))
    assert headers[-2:] == [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    assert (b"sec-websocket-key", b"x3JJHMbDL1EzLkh9GBhXDw==") in headers
    assert [name for name, _ in headers].count(b"upgrade") == 1


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([(b"content-type", b"text/html"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")], 3),
        ([(b"location", b"/login"), (b"server", b"theirs"), (b"content-length", b"3")], 3),
        ([(b"x-frame-options", b"SAMEORIGIN"), (b"expires", b"0")], 2),
        ([(b"connection", b"close"), (b"keep-alive", b"timeout=5"), (b"proxy-authenticate", b"Basic")], 0),
        ([(b"connection", b"x-own"), (b"x-own", b"1")], 0),
        ([(b"date", b"Tue, 17 Nov 2026 03:00:00 GMT"), (b"x-request-id", b"theirs")], 0),
        ([(b"nel", b"{}"), (b"report-to", b"{}"), (b"reporting-endpoints", b"a=b")], 0),
        ([(b"strict-transport-security", b"max-age=1"), (b"alt-svc", b"h3"), (b"clear-site-data", b"*")], 0),
        ([(b"service-worker-allowed", b"/")], 0),
        ([(b"transfer-encoding", b"chunked"), (b"content-length", b"3")], 0),
    ],
)
def test_an_answers_headers_are_passed_on_but_for_those_that_are_not_the_units_to_say(
    given: list[Header], kept: int
) -> None:
    assert build_answer_headers(given, PASSAGE) == [*given[:kept], *KEPT_BY_NO_CACHE]


def test_the_answer_to_an_upgrade_says_so() -> None:
    given = [(b"upgrade", b"WebSocket"), (b"connection", b"Upgrade"), (b"sec-websocket-accept", b"k=")]
    assert build_upgrade_headers(given, PASSAGE) == [
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-accept", b"k="),
    ]


def test_a_cookie_in_the_answer_to_an_upgrade_stays_below_the_unit() -> None:
    given = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"set-cookie", b"a=1; Path=/")]
    assert (b"set-cookie", b"a=1; Path=/api/v1/gpu-units/web/proxy/http/") in build_upgrade_headers(given, PASSAGE)


def test_a_cookie_of_the_whole_origin_is_not_the_units_to_see_or_to_set() -> None:
    assert passed((b"cookie", b"__Host-session=s; a=1")) == [(b"cookie", b"a=1")]
    assert passed((b"cookie", b"__Host-session=s")) == []
    assert build_answer_headers([(b"set-cookie", b"__Host-session=s; Path=/")], PASSAGE) == KEPT_BY_NO_CACHE


def test_what_a_public_unit_says_to_caches_is_passed_on() -> None:
    said = [(b"cache-control", b"public, max-age=60")]
    public = dataclasses.replace(PASSAGE, is_public=True)
    assert build_answer_headers(said, public) == [*said, (b"vary", b"Authorization")]
    assert build_answer_headers(said, PASSAGE) == [
        (b"cache-control", b"private, max-age=60"),
        (b"vary", b"Authorization"),
    ]
