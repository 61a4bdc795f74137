"""A relative link in the documentation leads somewhere."""

from pathlib import Path

import pytest

from tests.architecture.markdown import list_anchors, list_documents, list_links
from tests.architecture.repository import ROOT


def find_broken_links(page: Path) -> tuple[str, ...]:
    return tuple(target for target in list_links(page.read_text()) if not leads_somewhere(page, target))


def leads_somewhere(page: Path, target: str) -> bool:
    if target.startswith(("https://", "http://", "mailto:")):
        return True
    name, _, anchor = target.partition("#")
    file = page.parent / name if name else page
    return file.exists() and (not anchor or file.suffix != ".md" or anchor in list_anchors(file.read_text()))


def test_every_relative_link_leads_somewhere() -> None:
    broken = {str(page): links for page in list_documents() if (links := find_broken_links(ROOT / page))}

    assert broken == {}


def test_the_rule_looks_at_all_pages() -> None:
    pages = {str(page) for page in list_documents()}

    assert {"README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/adr/README.md"} <= pages


@pytest.mark.parametrize(
    "text", ["[a](gone.md)", "![a](gone.svg)", "[a](page.md#gone)", "[a](#gone)", "[a]\n\n[a]: gone.md"]
)
def test_a_broken_link_is_seen(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{text}\n")

    assert len(find_broken_links(page)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[a](page.md)",
        "[a](sub/)",
        '[a](page.md "title")',
        "[a](#two-words-here)",
        "[a](page.md#two-words-here-1)",
        "[a](https://example.org/gone.md)",
        "`[a](gone.md)`",
        "```\n[a](gone.md)\n```",
    ],
)
def test_a_good_link_is_fine(tmp_path: Path, text: str) -> None:
    (tmp_path / "sub").mkdir()
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n## Two `words`, here\n\n## Two words here\n\n{text}\n")

    assert find_broken_links(page) == ()
