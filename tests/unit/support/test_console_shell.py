"""Commands in a reader's shell, and what is said of one that does not do what its page shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.console import READS, Block, Shell, open_shell, run_block

PAGE = Path("docs/page.md")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with open_shell(tmp_path, tmp_path) as shell:
        yield shell


def test_the_shell_is_clean_and_keeps_what_a_command_sets(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_THE_TEST", "yes")
    assert shell.run("name=value; call() { echo called $name; }").status == 0
    assert shell.run('call; pwd; echo "$FROM_THE_TEST."').output == f"called value\n{tmp_path}\n.\n"
    assert shell.run("ls ${PATH#/usr/bin:/bin:}").output in ("", "go\n")
    assert shell.run("cat; echo gone >&2; false | true").status == 1


def test_a_block_that_does_what_it_shows_is_fine(shell: Shell) -> None:
    code = ("$ echo started in 12.1 s", "started in 3.4 s", "$ echo 'error: no'; false", "error: no", "$ true")
    run_block(shell, PAGE, Block(1, "console", code))


def test_a_request_that_the_api_is_too_busy_for_is_sent_again(shell: Shell) -> None:
    shell.run("send() { rm busy 2>/dev/null || return 0; echo 'curl: (22) The URL returned error: 503'; return 22; }")
    shell.run("touch busy")
    run_block(shell, PAGE, Block(1, "console", ("$ send",)))


@pytest.mark.parametrize(
    ("kind", "code", "place", "words"),
    [
        ("console", ("$ true", "$ echo Failed", "Ready"), "docs/page.md:43:", "another shape"),
        ("console", ("$ echo said",), "docs/page.md:42:", "another shape"),
        ("console", ("$ false",), "docs/page.md:42:", "ended with 1"),
        ("console", ("$ echo error: no", "error: no"), "docs/page.md:42:", "ended with 0"),
        ("bash", ("# why", "echo said", "false"), "docs/page.md:44:", "ended with 1"),
        ("bash", ('eval "$(echo error: no >&2; false)"',), "docs/page.md:42:", "wrote an error"),
        ("bash", ("exit 3",), "docs/page.md:42:", "ended the shell"),
    ],
)
def test_a_block_that_fails_is_named_by_file_and_line(
    shell: Shell, kind: str, code: tuple[str, ...], place: str, words: str
) -> None:
    with pytest.raises(AssertionError) as failure:
        run_block(shell, PAGE, Block(41, kind, code))
    assert str(failure.value).startswith(place)
    assert words in str(failure.value)


@pytest.mark.parametrize(
    ("command", "is_read"),
    [
        ("gpu-platform units list", True),
        ("gpu-platform drift", True),
        ("gpu-platform units stack web", True),
        ("gpu-platform stack gpu-unit/default.web refresh", False),
        ("gpu-platform units create list --spec g1.1", False),
        ("api $base/gpu-units/web", True),
        ("api $base/gpu-units -d '{}'", False),
        ("curl -sS -X DELETE $base/gpu-units/web", False),
        ("curl -sS \\\n  -d @web.json $base/gpu-units", False),
        ("make dev", False),
    ],
)
def test_only_commands_that_read_are_repeated(command: str, is_read: bool) -> None:
    assert bool(READS.match(command)) == is_read
