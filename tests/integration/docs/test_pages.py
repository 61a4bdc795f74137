"""What README and the other pages tell a reader to run, run from a clean shell, in order.

The README's tour starts the cluster, and every other page goes on where it ends, in a new shell.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.markdown import list_documents
from tests.architecture.repository import ROOT
from tests.support.console import Shell, copy_checkout, open_shell, parse_page, run_block

README = Path("README.md")


def list_pages() -> list[Path]:
    parsed = {path: parse_page((ROOT / path).read_text()) for path in list_documents()}
    return [path for path, page in parsed.items() if any(block.is_run for block in page.blocks)]


PAGES = [page for page in list_pages() if page != README]


@dataclass
class Reader:
    """A user with the repository and an empty home directory, who follows page after page."""

    checkout: Path
    home: Path

    def read(self, page: Path) -> None:
        """Runs the blocks of one page, in a shell of its own."""
        with open_shell(self.checkout, self.home) as shell:
            if page != README:
                use_cluster(shell)
            for block in parse_page((ROOT / page).read_text()).blocks:
                if block.is_run:
                    run_block(shell, page, block)


def use_cluster(shell: Shell) -> None:
    ran = shell.run('variables=$(.venv/bin/gpu-platform dev env --dir .dev) && eval "$variables"')
    assert ran.status == 0, ran.output


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    checkout, home = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("home")
    copy_checkout(checkout)
    try:
        yield Reader(checkout, home)
    finally:
        with open_shell(checkout, home) as shell:
            shell.run(".venv/bin/gpu-platform dev down --dir .dev")


@pytest.fixture(scope="module")
def tour(reader: Reader) -> AssertionError | None:
    """The README's tour; what went wrong there."""
    try:
        reader.read(README)
    except AssertionError as error:
        return error
    return None


def test_the_readme_does_what_it_shows(tour: AssertionError | None) -> None:
    if tour:
        raise tour


@pytest.mark.usefixtures("tour")
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_does_what_it_shows(page: Path, reader: Reader) -> None:
    reader.read(page)
