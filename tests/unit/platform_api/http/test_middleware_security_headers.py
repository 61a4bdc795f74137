"""Which headers protect an answer in a browser."""

import pytest

from platform_api.http.middleware import API_POLICY, OWN_SECURITY_HEADERS, SECURITY_HEADERS, build_security_headers


def test_an_answer_of_the_api_gets_all_of_them() -> None:
    added = build_security_headers([(b"content-type", b"application/json")], is_proxied=False)

    assert added == list(OWN_SECURITY_HEADERS)
    assert dict(added).keys() == {
        b"cache-control",
        b"content-security-policy",
        b"cross-origin-opener-policy",
        b"cross-origin-resource-policy",
        b"permissions-policy",
        b"referrer-policy",
        b"x-content-type-options",
        b"x-frame-options",
        b"x-permitted-cross-domain-policies",
    }
    assert (b"content-security-policy", API_POLICY) in added


def test_an_answer_of_a_unit_gets_those_that_do_not_break_its_pages() -> None:
    added = build_security_headers([], is_proxied=True)

    assert added == list(SECURITY_HEADERS)
    assert {b"content-security-policy", b"cross-origin-opener-policy"}.isdisjoint(dict(added))


@pytest.mark.parametrize("is_proxied", [True, False])
def test_what_an_answer_sets_itself_is_kept(is_proxied: bool) -> None:
    own = [(b"X-Frame-Options", b"SAMEORIGIN"), (b"content-security-policy", b"sandbox")]
    names = {name for name, _ in build_security_headers(own, is_proxied=is_proxied)}

    assert {b"x-frame-options", b"content-security-policy"}.isdisjoint(names)
    assert b"x-content-type-options" in names
