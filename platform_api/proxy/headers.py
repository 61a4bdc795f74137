"""What is passed on of a request's and of an answer's headers, as pure functions.

| header                                    | to the unit                 | to the caller                    |
| ----------------------------------------- | --------------------------- | -------------------------------- |
| of one connection, or named in Connection | dropped                     | dropped                          |
| Authorization                             | dropped: it is the platform's key | passed on                  |
| Host                                      | the unit's own name         |                                  |
| Forwarded, X-Forwarded-*, X-Real-IP       | what is true, nothing that the caller says | passed on         |
| X-Request-ID                              | the request's id            | set by the frame                 |
| Content-Length, Transfer-Encoding         | as the body really comes    | a length that is still true      |
| about the whole origin, which is ours     | passed on                   | dropped                          |
| Cookie, Set-Cookie                        | see `cookies`               | see `cookies`                    |
| Cache-Control, Vary                       | passed on                   | see `caching`                    |
| Date                                      | passed on                   | set by the server                |
| any other one                             | passed on                   | passed on                        |
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from platform_api.proxying.caching import build_caching_headers
from platform_api.proxying.cookies import build_cookie, build_set_cookie

Header = tuple[bytes, bytes]
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


CLOSE = (b"connection", b"close")
"""One connection, one request: nothing of one caller can be left over for the next."""


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
