"""Which blocks of a page are run, which outputs have the shape that it shows, and what is said of a failure."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.console import (
    READS,
    Block,
    Shell,
    Step,
    has_shape,
    is_whole,
    normalise,
    open_shell,
    parse_page,
    run_block,
)


def test_a_console_block_is_commands_and_their_output() -> None:
    code = ("$ first \\", "    --more", "one", "", "two", "$ second '{", '  "a": 1}\'', "$ third")

    assert Block(10, "console", code).list_steps() == (
        Step(11, "first \\\n    --more", ("one", "", "two")),
        Step(16, "second '{\n  \"a\": 1}'", ()),
        Step(18, "third", ()),
    )


def test_a_bash_block_is_commands_whose_output_is_not_shown() -> None:
    code = ("# It's a comment.", "first    # isn't it", "", "second |", "  third", "call() {", "  fourth", "}")

    assert Block(1, "bash", code).list_steps() == (
        Step(3, "first    # isn't it", None),
        Step(5, "second |\n  third", None),
        Step(7, "call() {\n  fourth\n}", None),
    )


@pytest.mark.parametrize("command", ["a 'b", 'a "b', "a \\", "a |", "a &&", "a() {", 'a -d \'{\n  "b":'])
def test_a_command_goes_on_in_the_next_line(command: str) -> None:
    assert not is_whole(command)


@pytest.mark.parametrize("command", ["a", "a 'b\nc'", "a # it's", "a \\\n b", "a() { b; }", 'eval "$(a)"'])
def test_a_whole_command_ends_with_its_line(command: str) -> None:
    assert is_whole(command)


def test_blocks_are_found_with_their_lines_kinds_and_reasons() -> None:
    page = parse_page(
        "# Page\n\n```console\n$ run\n```\n\n1. item\n\n   <!-- not run: needs a GPU -->\n   ```bash\n   skip\n   ```\n"
        "\n~~~yaml\na: 1\n~~~\n"
    )

    assert page.mistakes == ()
    assert page.blocks == (
        Block(3, "console", ("$ run",)),
        Block(10, "bash", ("skip",), "needs a GPU"),
        Block(14, "yaml", ("a: 1",)),
    )
    assert [block.is_run for block in page.blocks] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("```\n$ run\n```\n", 1, "unknown kind ''"),
        ("\n```sh\nrun\n```\n", 2, "unknown kind 'sh'"),
        ("```text\ngpu-platform drift\n```\n", 1, "is never run"),
        ("```yaml\n$ run\n```\n", 1, "is never run"),
        ("    $ run\n", 1, "outside of a fence"),
        ("```console\nmake demo\n```\n", 1, "begins with a prompt"),
        ("```console\n```\n", 1, "begins with a prompt"),
        ("```bash\n$ run\n```\n", 1, "has no prompts"),
        ("```bash\nrun\n", 1, "never closed"),
        ("<!-- not run: slow -->\n\n```bash\nrun\n```\n", 2, "directly above"),
        ("<!-- not run: slow -->\n", 1, "directly above"),
        ("<!-- not run: -->\n```bash\nrun\n```\n", 2, "says why"),
        ("<!-- not run: slow -->\n```text\nrun\n```\n", 2, "needs no marker"),
    ],
)
def test_a_block_that_would_escape_is_a_mistake(text: str, line: int, words: str) -> None:
    [(found_at, sentence)] = parse_page(text).mistakes

    assert found_at == line
    assert words in sentence


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("since 2026-11-16T11:45:44.085383Z", "since 2031-01-01T00:00:00Z"),
        ("uid=b4660058-d4d5-459b-9d2b-e6725b5009a9", "uid=00000000-aaaa-bbbb-cccc-0123456789ab"),
        ("Pod/unit-broken-644d4d68f5-dblmj is", "Pod/unit-broken-5b9c7d-x2x4z is"),
        ("accepted 4e40ab7a7135", "accepted 0123456789abcdef"),
        ("http://127.28.0.3:8000", "http://127.3.1.200:8000"),
        ("ready at http://127.0.0.1:22850", "ready at http://127.0.0.1:1"),
        ("ready after 1.7 s", "ready after 20 s"),
        ("answered 20 ms", "answered 3,096 ms"),
        ("3s ago", "1h5m ago"),
        ('{"name":"web",…', '{"name":"web","spec":{}}'),
        ('"hash": "8c1f…"', '"hash": "8c1fd"'),
        ("NAME  AGE\nweb   3s", "NAME      AGE\nweb       3s\n"),
        ("one\n\ntwo", "one\ntwo\n"),
        ("a long line that\nthe page breaks", "a long line that the page breaks\n"),
        ('{"a":1,\n "b":2}', '{"a":1,"b":2}'),
        ("web is Ready after 1.7 s", "web: Pending after 0s\nweb is Ready after 2.1 s\n"),
        ("…\nlast", "first\nsecond\nlast\n"),
        ("first\n…\nlast", "first\nlast\n"),
        ("first\n…", "first\nsecond\nthird\n"),
        ("", ""),
    ],
)
def test_what_differs_from_run_to_run_agrees(shown: str, seen: str) -> None:
    assert has_shape(shown.split("\n"), seen)


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("web is Ready after 1.7 s", "web is Failed after 1.7 s"),
        ("accepted 4e40ab7a7135", "accepted none"),
        ("http://127.28.0.3:8000", "http://127.28.0.3:9000"),
        ("0 create, 1 update", "1 create, 1 update"),
        ("NAME AGE\nweb 3s", "NAME PHASE AGE\nweb Ready 3s"),
        ("web 3s", "web 3s\napi 4s"),
        ("web 3s\napi 4s", "web 3s"),
        ("one two", "one\ntwo"),
        ("first\n…\nlast", "first\nsecond"),
        ('{"name":"web",…', '{"name":"other","spec":{}}'),
        ("", "a warning"),
        ("{}", "{}{}"),
    ],
)
def test_what_a_reader_would_stumble_over_does_not_agree(shown: str, seen: str) -> None:
    assert not has_shape(shown.split("\n"), seen)


def test_words_stay_as_they_are() -> None:
    text = "pool host is ready: 4 nodes with 8 GPUs, 53 same, 1Gi, g1.1, unit-web.runtime-instance.svc:8000"
    assert normalise(text) == f"{text}\n"


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
