"""The headers of a request and of an answer that the reverse proxy forwards, with cookies and cache rules. Pure.

| header                                    | to the unit                 | to the caller                    |
| ----------------------------------------- | --------------------------- | -------------------------------- |
| of one connection, or named in Connection | dropped                     | dropped                          |
| Authorization                             | dropped: the platform's key | forwarded                        |
| Host                                      | the unit's own name         |                                  |
| Forwarded, X-Forwarded-*, X-Real-IP       | what is true, nothing that  | forwarded                        |
|                                           | the caller sent             |                                  |
| X-Request-ID                              | the request's id            | set by the middleware            |
| Content-Length, Transfer-Encoding         | as the body really arrives  | a length that is still true      |
| about the whole origin, which is ours     | forwarded                   | dropped                          |
| Cookie, Set-Cookie                        | see `build_cookie`          | see `build_set_cookie`           |
| Cache-Control, Vary                       | forwarded                   | see `build_caching_headers`      |
| Date                                      | forwarded                   | set by the server                |
| any other one                             | forwarded                   | forwarded                        |
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

Header = tuple[bytes, bytes]
VARY = (b"vary", b"Authorization")

FOR_SHARED_CACHES = frozenset({b"private", b"public", b"s-maxage", b"proxy-revalidate"})
"""Directives that are dropped before `private` is added. `private="name"` would protect that one header only."""

ORIGIN_WIDE = b"__host-"
"""Browsers accept this beginning of a name only for `Path=/` and without `Domain`, whatever the case of its letters."""

Headers = Sequence[Header]

OF_ONE_CONNECTION = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

SAID_BY_US = frozenset(
    {
        b"authorization",
        b"content-length",
        # The server has consented by itself when the body is read.
        b"expect",
        b"forwarded",
        b"host",
        b"x-real-ip",
        b"x-request-id",
    }
)

FORWARDED = b"x-forwarded-"

NOT_THEIRS_TO_SAY = frozenset(
    {
        b"alt-svc",
        b"clear-site-data",
        b"date",
        b"nel",
        b"report-to",
        b"reporting-endpoints",
        b"service-worker-allowed",
        b"strict-transport-security",
        b"x-request-id",
    }
)

CLOSE = (b"connection", b"close")
"""One connection, one request: nothing of one caller can be left over for the next."""


def build_caching_headers(given: Sequence[Header], *, is_public: bool) -> list[Header]:
    """The answer's headers, with what caches need to know.

    Two tenants call their units under the same address, told apart by their keys only: a cache between them and the
    platform must neither mix the two up nor answer without a key.

    | unit    | it sends                        | the caller gets                                                   |
    | ------- | ------------------------------- | ----------------------------------------------------------------- |
    | any     | any `Vary`                      | with `Authorization` in it                                        |
    | private | no `Cache-Control`              | `private, no-store`                                               |
    | private | `public`, `s-maxage` and others | `private` and the others: only the caller's own cache may keep it |
    | private | `CDN-Cache-Control` and similar | nothing of it                                                     |
    | public  | anything                        | the same: all callers may read it without a key                   |
    """
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


def build_set_cookie(value: bytes, prefix: bytes) -> bytes | None:
    """The `Set-Cookie` for the caller of a unit below this prefix, which does not end in a slash; None to drop it.

    All units are called under one origin, the platform's: a cookie as the unit wrote it would reach every other unit.

    | a unit's cookie                         | is forwarded                                                    |
    | --------------------------------------- | --------------------------------------------------------------- |
    | with `Path`                             | with that path below the unit's own prefix                      |
    | with a `Path` already below that prefix | with the same path                                              |
    | without `Path`, or with a relative one  | without: its path is that of the request, below the prefix      |
    | with `Domain`                           | without: other hosts are not the unit's                         |
    | `__Host-…`                              | not at all: such a cookie is the whole origin's                 |
    """
    cookie, *attributes = value.split(b";")
    if _is_origin_wide(cookie):
        return None
    kept = [each for each in attributes if _name_of(each) not in (b"path", b"domain")]
    # Browsers take the last one.
    path = next((_value_of(each) for each in reversed(attributes) if _name_of(each) == b"path"), b"")
    if path.startswith(b"/"):
        kept.append(b" Path=" + (path if path == prefix or path.startswith(prefix + b"/") else prefix + path))
    return b";".join([cookie, *kept])


def build_cookie(value: bytes) -> bytes | None:
    """The `Cookie` for the unit; None to drop the header. A `__Host-…` cookie is the platform's, or of what is in
    front of it; the path of any other one has brought it to this unit."""
    kept = [each.strip() for each in value.split(b";") if each.strip() and not _is_origin_wide(each)]
    return b"; ".join(kept) or None


def _is_origin_wide(cookie: bytes) -> bool:
    """A cookie without a name, `=__Host-a=b`, is sent back by some browsers as one with that name."""
    return cookie.strip().lstrip(b"= \t").lower().startswith(ORIGIN_WIDE)


def _name_of(attribute: bytes) -> bytes:
    return attribute.partition(b"=")[0].strip().lower()


def _value_of(attribute: bytes) -> bytes:
    return attribute.partition(b"=")[2].strip()


@dataclass(frozen=True)
class Passage:
    """What a request's new headers are made of."""

    authority: str
    prefix: str
    client: str
    scheme: str
    request_id: str
    is_upgrade: bool
    is_public: bool = False
    """All callers may read the target's answers without a key."""


def build_request_headers(given: Headers, passage: Passage) -> list[Header]:
    asked_host = _find(given, b"host")
    forwarded = [
        (b"x-forwarded-for", passage.client.encode()),
        (b"x-forwarded-proto", passage.scheme.encode()),
        (b"x-forwarded-prefix", passage.prefix.encode()),
        *([(b"x-forwarded-host", asked_host)] if asked_host else []),
        (b"x-request-id", passage.request_id.encode()),
    ]
    connection = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")] if passage.is_upgrade else [CLOSE]
    kept = [header for header in _kept(given, SAID_BY_US) if not _plain(header[0]).startswith(FORWARDED)]
    kept = _with_cookies(kept, b"cookie", build_cookie)
    return [(b"host", passage.authority.encode()), *kept, *_framing(given), *forwarded, *connection]


def build_answer_headers(given: Headers, passage: Passage) -> list[Header]:
    kept = _build_kept_answer(given, passage)
    if _find(given, b"transfer-encoding") is not None:
        kept = [header for header in kept if header[0] != b"content-length"]
    return build_caching_headers(kept, is_public=passage.is_public)


def build_upgrade_headers(given: Headers, passage: Passage) -> list[Header]:
    return [(b"connection", b"Upgrade"), (b"upgrade", b"websocket"), *_build_kept_answer(given, passage)]


def _build_kept_answer(given: Headers, passage: Passage) -> list[Header]:
    scoped = partial(build_set_cookie, prefix=passage.prefix.encode())
    return _with_cookies(_kept(given, NOT_THEIRS_TO_SAY), b"set-cookie", scoped)


def _framing(given: Headers) -> list[Header]:
    if _find(given, b"transfer-encoding") is not None:
        return [(b"transfer-encoding", b"chunked")]
    length = _find(given, b"content-length")
    return [] if length is None else [(b"content-length", length)]


def _kept(given: Headers, dropped: Iterable[bytes]) -> list[Header]:
    named = {
        _plain(token.strip()) for name, value in given if name.lower() == b"connection" for token in value.split(b",")
    }
    gone = OF_ONE_CONNECTION.union(dropped, named)
    return [(name, value) for name, value in given if _plain(name) not in gone]


def _with_cookies(headers: Headers, wanted: bytes, build: Callable[[bytes], bytes | None]) -> list[Header]:
    rebuilt = [(name, build(value) if name.lower() == wanted else value) for name, value in headers]
    return [(name, value) for name, value in rebuilt if value is not None]


def _plain(name: bytes) -> bytes:
    """Many servers make no difference between `X_Forwarded_For` and the real one."""
    return name.lower().replace(b"_", b"-")


def _find(given: Headers, wanted: bytes) -> bytes | None:
    return next((value for name, value in given if name.lower() == wanted), None)
