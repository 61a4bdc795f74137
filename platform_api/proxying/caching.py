"""Who may keep an answer of a unit, as a pure function.

Two tenants call their units under the same address, told apart by their keys only: a cache between them and the
platform must neither mix the two up nor answer without a key.

| unit    | it sends                           | the caller gets                                                  |
| ------- | ---------------------------------- | ---------------------------------------------------------------- |
| any     | any `Vary`                         | with `Authorization` in it                                       |
| private | no `Cache-Control`                 | `private, no-store`                                              |
| private | `public`, `s-maxage` and others    | `private` and the others: only the caller's own cache may keep it |
| private | `CDN-Cache-Control` and the like   | nothing of it                                                    |
| public  | anything                           | the same: all callers may read it without a key                  |
"""

from collections.abc import Sequence

Header = tuple[bytes, bytes]

VARY = (b"vary", b"Authorization")
FOR_SHARED_CACHES = frozenset({b"private", b"public", b"s-maxage", b"proxy-revalidate"})
"""Directives that are dropped before `private` is added. `private="name"` would protect that one header only."""


def build_caching_headers(given: Sequence[Header], *, is_public: bool) -> list[Header]:
    """The answer's headers, with what caches need to know."""
    headers = list(given) if is_public else _make_private(given)
    varies = {token.strip().lower() for name, value in given if name.lower() == b"vary" for token in value.split(b",")}
    return headers if varies & {b"authorization", b"*"} else [*headers, VARY]


def _make_private(given: Sequence[Header]) -> list[Header]:
    kept = [header for header in given if not _is_for_caches(header[0].lower())]
    said = b",".join(value for name, value in given if name.lower() == b"cache-control")
    directives = [each.strip() for each in said.split(b",") if each.strip()] or [b"no-store"]
    own = [each for each in directives if each.partition(b"=")[0].strip().lower() not in FOR_SHARED_CACHES]
    return [*kept, (b"cache-control", b", ".join([b"private", *own]))]


def _is_for_caches(name: bytes) -> bool:
    return name in (b"cache-control", b"surrogate-control") or name.endswith(b"-cache-control")
