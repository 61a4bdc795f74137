"""Which blocks of a page are run, and how a block is cut into commands."""

import pytest

from tests.support.console import Block, Step, is_whole, parse_page


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
