"""Whether the output of a command has the shape that a page shows. Pure.

What differs from run to run may have any value; everything else must agree, word by word:

| in the page | agrees with |
|---|---|
| `2026-11-16T11:45:44.085383Z` | any instant |
| `b4660058-d4d5-459b-9d2b-e6725b5009a9` | any uid |
| `unit-web-644d4d68f5-dblmj` | any pod of the Deployment `unit-web` |
| `4e40ab7a7135` | any 12 or more hexadecimal digits: hashes, ids of requests |
| `127.28.0.3:8000` | any address of the host node's pods, with the same port |
| `127.0.0.1:22850` | any port of this machine |
| `1.7 s`, `20 ms` | any duration |
| `18s`, `5m3s` | any age |
| `…` in a line | anything in that line |
| `…` as a line | any number of lines |
| the end of a line | the end of a line, a space or nothing: a page breaks long lines |
| – | `web: Pending after 0s`, the progress of a wait: a terminal replaces it |
| several spaces, blank lines, indentation | any of them: columns are as wide as their widest cell |
"""

import re
from collections.abc import Sequence

ELLIPSIS = "…"

_POD_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
"""Of which Kubernetes makes the ends of generated names."""

_VOLATILE = (
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<instant>"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uid>"),
    (rf"(?<=\w)-{_POD_LETTERS}{{5,10}}-{_POD_LETTERS}{{5}}\b", "-<pod>"),
    (r"\b[0-9a-f]{12,}\b", "<hex>"),
    (r"\b127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
    (r"\b127(\.\d+){3}(?=:\d)", "<host-address>"),
    (r"\b[\d,]+(\.\d+)? (?=m?s\b)", "<number> "),
    (r"\b(\d+[smhd])+\b", "<age>"),
)
"""In this order: an instant has ages in it."""

_PROGRESS = " after <age>"


def normalise(text: str) -> str:
    """The text with a name in the place of everything that differs from run to run, a line per line, single spaces."""
    for pattern, name in _VOLATILE:
        text = re.sub(pattern, name, text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.endswith(_PROGRESS))


def has_shape(shown: Sequence[str], seen: str) -> bool:
    return re.fullmatch(_build_pattern(normalise("\n".join(shown))), normalise(seen)) is not None


def _build_pattern(shape: str) -> str:
    def of_line(line: str) -> str:
        if line == ELLIPSIS:
            return r"(?:[^\n]*\n)*?"
        return re.escape(line).replace(ELLIPSIS, r"[^\n]*?") + r"\s?"

    return "".join(of_line(line) for line in shape.splitlines())
