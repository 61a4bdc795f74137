"""Headers that tell a browser what it must not do with an answer, as a pure function.

| header                     | API's own answer             | answer of a unit or storage, through the reverse proxy |
| -------------------------- | ---------------------------- | ------------------------------------------------------ |
| set by the answer itself   | kept                         | kept                                                   |
| Content-Security-Policy    | loads nothing, no frames     | not added: it would break the unit's pages             |
| Cross-Origin-Opener-Policy | same origin                  | not added: it would break logins in a pop-up window    |
| Permissions-Policy         | no camera, microphone, …     | not added: a unit's page may use them                  |
| any other one              | added                        | added                                                  |

`Strict-Transport-Security` is set where TLS ends, which is before the API.
"""

from collections.abc import Iterable

Header = tuple[bytes, bytes]

API_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""An answer that is JSON or text needs nothing, even if a browser were to show it as a page."""

SECURITY_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-permitted-cross-domain-policies", b"none"),
)
OWN_SECURITY_HEADERS: tuple[Header, ...] = (
    *SECURITY_HEADERS,
    (b"content-security-policy", API_POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"),
)


def build_security_headers(answer: Iterable[Header], *, is_proxied: bool) -> list[Header]:
    """The headers to add to an answer that has these."""
    names = {name.lower() for name, _ in answer}
    return [header for header in (SECURITY_HEADERS if is_proxied else OWN_SECURITY_HEADERS) if header[0] not in names]
