"""No cache between callers and the platform mixes up what is behind different keys."""

import pytest

from platform_api.proxy.headers import Header, build_caching_headers

VARY = (b"vary", b"Authorization")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], b"private, no-store"),
        ([(b"cache-control", b"")], b"private, no-store"),
        ([(b"cache-control", b"max-age=60")], b"private, max-age=60"),
        ([(b"Cache-Control", b"Public, S-MaxAge=9, max-age=60")], b"private, max-age=60"),
        ([(b"cache-control", b"public"), (b"cache-control", b"immutable")], b"private, immutable"),
        ([(b"cache-control", b'private="x-own", no-cache')], b"private, no-cache"),
        ([(b"cache-control", b"no-store")], b"private, no-store"),
        ([(b"cdn-cache-control", b"max-age=60"), (b"surrogate-control", b"max-age=60")], b"private, no-store"),
    ],
)
def test_only_the_callers_own_cache_may_keep_a_private_units_answer(given: list[Header], expected: bytes) -> None:
    assert build_caching_headers(given, is_public=False) == [(b"cache-control", expected), VARY]


@pytest.mark.parametrize("is_public", [True, False])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], [b"Authorization"]),
        ([b"Accept-Encoding"], [b"Accept-Encoding", b"Authorization"]),
        ([b"accept, AUTHORIZATION"], [b"accept, AUTHORIZATION"]),
        ([b"*"], [b"*"]),
    ],
)
def test_answers_are_kept_apart_by_key(is_public: bool, said: list[bytes], expected: list[bytes]) -> None:
    headers = build_caching_headers([(b"vary", value) for value in said], is_public=is_public)
    assert [value for name, value in headers if name == b"vary"] == expected


def test_a_public_units_answer_is_its_own_affair() -> None:
    said = [(b"cache-control", b"public, max-age=60"), (b"cdn-cache-control", b"max-age=9")]
    assert build_caching_headers(said, is_public=True) == [*said, VARY]
