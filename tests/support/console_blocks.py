"""The blocks of a page that a reader runs: which they are, their commands, and what is shown below each. Pure.

| fence | is |
|---|---|
| `console` | commands after `$ `, each with all of its output |
| `bash` | commands without prompts; their output is not shown |
| `json`, `python`, `text`, `yaml` | not for a shell |
| another one, or none | a mistake: such a block could be one that is never run |

A line `<!-- not run: the reason -->` directly above a fence exempts that block.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

RUN = frozenset({"bash", "console"})
SHOWN = frozenset({"json", "python", "text", "yaml"})

PROMPT = "$ "
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<kind>[^`\s]*).*$")
NOT_RUN = re.compile(r"^ *<!-- *not run: *(?P<reason>.*?) *-->$")
A_COMMAND = re.compile(r"^\s*(\$ |(sudo |\w+=\S+ )*(curl|eval|gpu-platform|kubectl|make|pip|pulumi|python3?)\s)")
"""What begins like something that a reader would type."""

MARKER_ALONE = "a `not run` marker stands directly above a fence"
GOES_ON = ("\\", "|", "&&", "||")


@dataclass(frozen=True)
class Step:
    """One command, and the lines shown below it; None where the block shows no output."""

    line: int
    command: str
    shown: tuple[str, ...] | None


@dataclass(frozen=True)
class Block:
    line: int
    kind: str
    code: tuple[str, ...]
    why_not_run: str | None = None

    @property
    def is_for_a_shell(self) -> bool:
        return self.kind in RUN

    @property
    def is_run(self) -> bool:
        return self.is_for_a_shell and self.why_not_run is None

    def list_steps(self) -> tuple[Step, ...]:
        lines = list(enumerate(self.code, self.line + 1))
        return tuple(_list_shown_steps(lines) if self.kind == "console" else _list_plain_steps(lines))


@dataclass(frozen=True)
class Page:
    blocks: tuple[Block, ...]
    mistakes: tuple[tuple[int, str], ...]
    """Line and sentence of everything that would let a block go unnoticed."""


def parse_page(text: str) -> Page:
    blocks, mistakes = [], []
    lines = text.splitlines()
    reason: str | None = None
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if opening := FENCE.match(line):
            end = _find_end(lines, number, opening["fence"])
            code = tuple(each.removeprefix(opening["indent"]) for each in lines[number:end])
            block = Block(number, opening["kind"], code, reason)
            blocks.append(block)
            mistakes += [(block.line, sentence) for sentence in _find_mistakes(block, closed=end < len(lines))]
            number = end + 1
        elif reason is not None:
            mistakes.append((number, MARKER_ALONE))
        elif line.lstrip().startswith(PROMPT):
            mistakes.append((number, "a command outside of a fence is never run: put it into a console block"))
        marker = NOT_RUN.match(line)
        reason = marker["reason"] if marker else None
    if reason is not None:
        mistakes.append((number, MARKER_ALONE))
    return Page(tuple(blocks), tuple(mistakes))


def _find_end(lines: Sequence[str], start: int, fence: str) -> int:
    return next((at for at in range(start, len(lines)) if lines[at].strip() == fence), len(lines))


def _find_mistakes(block: Block, *, closed: bool) -> Iterator[str]:
    commands = [line for line in block.code if A_COMMAND.match(line)]
    if not closed:
        yield "this fence is never closed"
    if block.kind not in RUN | SHOWN:
        kinds = ", ".join(sorted(RUN | SHOWN))
        yield f"unknown kind {block.kind!r}: nothing says whether a reader would run this block; write one of {kinds}"
    elif block.kind in SHOWN and commands:
        yield f"a block of {block.kind} with a command is never run ({commands[0].strip()}): write console or bash"
    elif block.kind == "console" and not (block.code and block.code[0].startswith(PROMPT)):
        yield "a console block begins with a prompt; commands without one are a bash block"
    elif block.kind == "bash" and any(line.startswith(PROMPT) for line in block.code):
        yield "a bash block has no prompts; commands with them are a console block"
    if block.why_not_run is not None and not block.is_for_a_shell:
        yield "only console and bash blocks are run: this one needs no marker"
    if block.why_not_run == "":
        yield "a `not run` marker says why"


def _list_shown_steps(lines: Sequence[tuple[int, str]]) -> Iterator[Step]:
    """Each command after a prompt, with the lines up to the next prompt."""
    starts = [at for at, (_, line) in enumerate(lines) if line.startswith(PROMPT)]
    for start, following in zip(starts, [*starts[1:], len(lines)], strict=True):
        command = lines[start][1].removeprefix(PROMPT)
        rest = list(lines[start + 1 : following])
        while rest and not is_whole(command):
            command += "\n" + rest.pop(0)[1]
        yield Step(lines[start][0], command, tuple(line for _, line in rest))


def _list_plain_steps(lines: Sequence[tuple[int, str]]) -> Iterator[Step]:
    """Each command of a script; comments and blank lines belong to none."""
    command, begun_at = "", 0
    for number, line in lines:
        if not command and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun_at = begun_at if command else number
        command = f"{command}\n{line}" if command else line
        if is_whole(command):
            yield Step(begun_at, command, None)
            command = ""
    if command:
        yield Step(begun_at, command, None)


def is_whole(command: str) -> bool:
    """Whether a shell would run it at this newline, instead of waiting for another line. No here-documents."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return False
    return not command.endswith(GOES_ON) and words.count("{") == words.count("}")
