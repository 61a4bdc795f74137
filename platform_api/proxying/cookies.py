"""Cookies of units, as pure functions.

All units are called under one origin, the platform's: a cookie as the unit wrote it would reach every other unit.

| cookie                                   | what is passed on                                              |
| ---------------------------------------- | -------------------------------------------------------------- |
| a unit sets one, with `Path`             | with that path below the unit's own prefix                     |
| with a `Path` already below that prefix  | with the same path                                             |
| without `Path`, or with one that is not absolute | without: its path is that of the request, below the prefix |
| with `Domain`                            | without: other hosts are not the unit's                        |
| `__Host-…`, set by a unit                | nothing: such a cookie is the whole origin's                   |
| `__Host-…`, sent by a caller             | nothing: it is of the platform, or of what is in front of it   |
| any other one, sent by a caller          | the cookie: its path has brought it to this unit               |
"""

ORIGIN_WIDE = b"__host-"
"""Browsers accept this beginning of a name only for `Path=/` and without `Domain`, whatever the case of its letters."""


def build_set_cookie(value: bytes, prefix: bytes) -> bytes | None:
    """The `Set-Cookie` for the caller of a unit below this prefix, which does not end in a slash; None to drop it."""
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
    """The `Cookie` for the unit; None to drop the header."""
    kept = [each.strip() for each in value.split(b";") if each.strip() and not _is_origin_wide(each)]
    return b"; ".join(kept) or None


def _is_origin_wide(cookie: bytes) -> bool:
    """A cookie without a name, `=__Host-a=b`, is sent back by some browsers as one with that name."""
    return cookie.strip().lstrip(b"= \t").lower().startswith(ORIGIN_WIDE)


def _name_of(attribute: bytes) -> bytes:
    return attribute.partition(b"=")[0].strip().lower()


def _value_of(attribute: bytes) -> bytes:
    return attribute.partition(b"=")[2].strip()
