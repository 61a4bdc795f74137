"""Cookies of one unit do not reach another one."""

import pytest

from platform_api.proxy.headers import build_cookie, build_set_cookie

PREFIX = b"/api/v1/gpu-units/web/proxy/http"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b"a=1; Path=/", b"a=1; Path=/api/v1/gpu-units/web/proxy/http/"),
        (b"a=1; path=/app ;HttpOnly", b"a=1;HttpOnly; Path=/api/v1/gpu-units/web/proxy/http/app"),
        (b"a=1;PATH = /", b"a=1; Path=/api/v1/gpu-units/web/proxy/http/"),
        (b"a=1; Path=" + PREFIX + b"/lab", b"a=1; Path=" + PREFIX + b"/lab"),
        (b"a=1; Path=" + PREFIX, b"a=1; Path=" + PREFIX),
        (b"a=1; Path=" + PREFIX + b"2", b"a=1; Path=" + PREFIX + PREFIX + b"2"),
        (b"a=1; Path=/api/v1/gpu-units/db", b"a=1; Path=" + PREFIX + b"/api/v1/gpu-units/db"),
        # The last one counts.
        (b"a=1; Path=" + PREFIX + b"/; Path=/", b"a=1; Path=" + PREFIX + b"/"),
        (b"a=1", b"a=1"),
        (b"a=1; Path=", b"a=1"),
        (b"a=1; Path=relative; Secure", b"a=1; Secure"),
        (b"a=1; Domain=example.com; Max-Age=5", b"a=1; Max-Age=5"),
        (b"a=1; domain = .example.com ; Path=/", b"a=1; Path=" + PREFIX + b"/"),
        (b"__Secure-a=1; Secure; Path=/", b"__Secure-a=1; Secure; Path=" + PREFIX + b"/"),
        (b"__Host-a=1; Secure; Path=/", None),
        (b" __hOST-a=1", None),
        (b"=__Host-a=1", None),
        (b"", b""),
    ],
)
def test_a_cookie_that_a_unit_sets_stays_below_its_prefix(given: bytes, expected: bytes | None) -> None:
    assert build_set_cookie(given, PREFIX) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b"a=1", b"a=1"),
        (b"a=1; b=2", b"a=1; b=2"),
        (b"a=1;b=2;", b"a=1; b=2"),
        (b"__Host-session=x; a=1", b"a=1"),
        (b"a=1; __HOST-session=x", b"a=1"),
        (b"__Host-session=x", None),
        (b"", None),
    ],
)
def test_a_cookie_of_the_whole_origin_is_not_sent_to_a_unit(given: bytes, expected: bytes | None) -> None:
    assert build_cookie(given) == expected
