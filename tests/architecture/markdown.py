"""As much of Markdown as the documentation tests need: links, headings, and the code that readers type."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.repository import ROOT, list_files

FENCE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<code>.*?)^ {0,3}(?P=fence)[`~]*\s*$", re.MULTILINE | re.DOTALL
)
CODE_SPAN = re.compile(r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)", re.DOTALL)
INLINE_LINK = re.compile(r"\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(?P<target>[^\s>]+)>?", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(?P<text>.+?)\s*#*\s*$", re.MULTILINE)


def list_documents() -> tuple[Path, ...]:
    """The pages that people read, relative to the root."""
    return tuple(path for path in list_files(ROOT) if path.suffix == ".md" and not path.is_relative_to("tests"))


def list_links(text: str) -> tuple[str, ...]:
    prose = CODE_SPAN.sub("", FENCE.sub("", text))
    return tuple(match["target"] for pattern in (INLINE_LINK, REFERENCE) for match in pattern.finditer(prose))


def list_anchors(text: str) -> frozenset[str]:
    """The names that GitHub gives to the headings."""
    anchors: list[str] = []
    for match in HEADING.finditer(FENCE.sub("", text)):
        words = re.sub(r"[^\w\- ]", "", match["text"].lower()).replace(" ", "-")
        same = sum(1 for anchor in anchors if anchor == words or re.fullmatch(rf"{re.escape(words)}-\d+", anchor))
        anchors.append(f"{words}-{same}" if same else words)
    return frozenset(anchors)


def list_code(text: str) -> Iterator[str]:
    """Every line of code, from fenced blocks and from code spans; shell comments are gone."""
    for match in FENCE.finditer(text):
        yield from (line.partition("#")[0].strip() for line in match["code"].splitlines())
    yield from (" ".join(match["code"].split()) for match in CODE_SPAN.finditer(FENCE.sub("", text)))
