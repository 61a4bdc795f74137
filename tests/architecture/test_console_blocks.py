"""Every block that a reader would run is run by a test, or says why not."""

from tests.architecture.markdown import list_documents
from tests.architecture.repository import ROOT
from tests.support.console import Page, parse_page

NOT_RUN = {
    "CONTRIBUTING.md": 1,
    "README.md": 1,
    "docs/api.md": 2,
    "docs/benchmarks.md": 1,
    "docs/infra.md": 1,
    "docs/restore.md": 4,
    "docs/ssh.md": 2,
}
"""How many blocks of each page are not run. A new one needs a reason in the page and its number here."""


def parse_pages() -> dict[str, Page]:
    return {str(path): parse_page((ROOT / path).read_text()) for path in list_documents()}


def test_no_block_escapes_unseen() -> None:
    assert [f"{path}:{line}: {words}" for path, page in parse_pages().items() for line, words in page.mistakes] == []


def test_as_many_blocks_are_not_run_as_agreed() -> None:
    counts = {path: sum(block.why_not_run is not None for block in page.blocks) for path, page in parse_pages().items()}
    assert {path: count for path, count in counts.items() if count} == NOT_RUN


def test_the_rule_looks_at_the_pages_that_readers_follow() -> None:
    run = {path for path, page in parse_pages().items() if any(block.is_run for block in page.blocks)}
    assert {"README.md", "docs/api.md", "docs/serverless.md", "examples/tenant-program/README.md"} <= run
