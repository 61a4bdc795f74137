"""The Makefile is the one list of commands: what the pages promise exists, and `make help` tells all."""

import os
import re
import subprocess

import pytest

from tests.architecture.markdown import list_code, list_documents
from tests.architecture.repository import ROOT

RULE = re.compile(
    r"^(?P<targets>[a-z][\w-]*(?: +[a-z][\w-]*)*) *::?(?!=)(?P<needs>[^=#\n]*)(?P<comment>## *\S.*)?$",
    re.MULTILINE,
)
PHONY = re.compile(r"^\.PHONY *:(?P<targets>(?:[^\n\\]|\\\n)*)", re.MULTILINE)
COMMAND = re.compile(r"(?:^|[;&|(]|\bsudo )\s*(?:\w+=\S* +)*make((?: +-\S+| +\w+=\S+)*)(?: +(?P<target>[a-z][\w-]*))?")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def read_makefile() -> str:
    return (ROOT / "Makefile").read_text()


def list_targets(makefile: str) -> frozenset[str]:
    return frozenset(target for rule in RULE.finditer(makefile) for target in rule["targets"].split())


def list_public_targets(makefile: str) -> frozenset[str]:
    """The targets that carry a `## text`."""
    return frozenset(
        target for rule in RULE.finditer(makefile) if rule["comment"] for target in rule["targets"].split()
    )


def list_phony_targets(makefile: str) -> frozenset[str]:
    return frozenset(
        target for line in PHONY.finditer(makefile) for target in line["targets"].replace("\\\n", " ").split()
    )


def list_needs(makefile: str, target: str) -> tuple[str, ...]:
    return tuple(
        need for rule in RULE.finditer(makefile) if target in rule["targets"].split() for need in rule["needs"].split()
    )


def list_promised_targets(text: str) -> frozenset[str]:
    """The targets of the `make` commands in a page's code."""
    commands = (match for line in list_code(text) for match in COMMAND.finditer(line))
    return frozenset(match["target"] for match in commands if match["target"])


def run_make_help() -> str:
    # Under `make test` the outer make hands its own flags down; they would change what this one prints.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", "help"]
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return COLOUR.sub("", shown.stdout)


def test_every_promised_command_exists() -> None:
    promised = {page: list_promised_targets((ROOT / page).read_text()) for page in list_documents()}
    missing = {
        str(page): sorted(gone)
        for page, targets in promised.items()
        if (gone := targets - list_targets(read_makefile()))
    }

    assert missing == {}
    assert {"check", "test"} <= frozenset().union(*promised.values())


def test_make_help_lists_every_public_target() -> None:
    public = list_public_targets(read_makefile())
    listed = {words[0] for line in run_make_help().splitlines() if (words := line.split())}

    assert {"help", "check", "test"} <= public
    assert sorted(public - listed) == []


def test_every_command_is_public() -> None:
    makefile = read_makefile()

    assert sorted(list_phony_targets(makefile) - list_public_targets(makefile)) == []


def test_plain_make_prints_the_help() -> None:
    makefile = read_makefile()
    goal = re.search(r"^\.DEFAULT_GOAL *:?= *(\S+)$", makefile, re.MULTILINE)
    first = RULE.search(makefile)

    assert (goal[1] if goal else first and first["targets"]) == "help"


@pytest.mark.parametrize(("alias", "target"), [("ci", "test"), ("run", "dev")])
def test_an_alias_does_the_same_as_its_target(alias: str, target: str) -> None:
    assert list_needs(read_makefile(), alias) == (target,)


EXAMPLE = """\
PYTHON := python3
.PHONY: help test \\
        clean
help: ## Show this
	@echo help
test: check | .venv ## Run the tests
check fix: .venv
.venv/ok: requirements/dev.txt
	touch $@
"""


def test_the_makefile_is_read_as_make_reads_it() -> None:
    assert list_targets(EXAMPLE) == {"help", "test", "check", "fix"}
    assert list_public_targets(EXAMPLE) == {"help", "test"}
    assert list_phony_targets(EXAMPLE) == {"help", "test", "clean"}
    assert list_needs(EXAMPLE, "test") == ("check", "|", ".venv")


def test_commands_are_found_in_code_only() -> None:
    page = """
Please make sure that `make check` passes, or try `KEEP=1 make -j2 bench`.

```console
make demo    # make coffee meanwhile
cd x && make dev
```
"""

    assert list_promised_targets(page) == {"check", "bench", "demo", "dev"}
