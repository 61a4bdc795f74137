"""The blocks of a page that a reader runs: which they are, the shape of their output (both pure), and a clean shell in
a checkout of its own that runs them one after the other.
"""

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.repository import ROOT, list_files
from tests.support.waiting import PATIENCE_SECONDS, Deadline

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


PATH = "/usr/bin:/bin"

STEP_SECONDS = 240.0
"""For one command; the start of a cluster takes about 20 s on two idle cores."""

SETTLE_SECONDS = PATIENCE_SECONDS
"""How long a command that only reads is repeated until it shows what the page shows."""

AGAIN_SECONDS = 0.5

READS = re.compile(
    r"^(gpu-platform \S+ (list|get|events|stack|health|url|logs)\b|gpu-platform (health|drift)\b|kubectl get\b"
    r"|(curl|api)\b(?!.* (-d|--data|-X)\b))",
    re.DOTALL,
)
"""Commands that may be run again: a reader would, while what they show is still on its way."""

BUSY = re.compile(r"^curl: .* 503$", re.MULTILINE)
"""How the API refuses a request on a busy machine; docs/api.md tells the caller to send it again."""

FAILED = re.compile(r"^(error: |curl: )", re.MULTILINE)
"""How a page shows that a command fails."""


@dataclass(frozen=True)
class Ran:
    output: str
    status: int


class StepError(Exception):
    """A command that has no end to speak of."""

    def __init__(self, complaint: str, ran: Ran) -> None:
        super().__init__(complaint)
        self.ran = ran


class Shell:
    """One bash for a whole page: what a block exports, defines or creates is there for the next."""

    def __init__(self, directory: Path, home: Path) -> None:
        self._home = home
        self._count = 0
        programs = _link_go(home)
        self._ends, told = os.pipe()
        environment = {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": f"{PATH}:{programs}",
            # The parts that `make tools` has built: they take 15 minutes.
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        }
        self._bash = subprocess.Popen(
            ["/bin/bash", "--noprofile", "--norc", "-o", "pipefail"],
            stdin=subprocess.PIPE,
            cwd=directory,
            env=environment,
            pass_fds=[told],
            text=True,
            start_new_session=True,
        )
        self._told = told
        os.close(told)

    def run(self, command: str) -> Ran:
        """Runs it in this shell itself, so that it can change it, and waits for its end."""
        assert self._bash.stdin is not None
        self._count += 1
        script, output = (self._home / f".step-{self._count}.{end}" for end in ("sh", "out"))
        script.write_text(command + "\n")
        told = self._told
        self._bash.stdin.write(f". {script} >{output} 2>&1 </dev/null {told}>&-; echo $? >&{told}\n")
        self._bash.stdin.flush()
        deadline = Deadline(STEP_SECONDS)
        while not select.select([self._ends], [], [], AGAIN_SECONDS)[0]:
            if deadline.is_over:
                raise StepError("it is not done in time", Ran(output.read_text(errors="replace"), 1))
        status = os.read(self._ends, 16)
        if not status:
            raise StepError("it ended the shell", Ran(output.read_text(errors="replace"), 1))
        return Ran(output.read_text(errors="replace"), int(status))

    def close(self) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()
        os.close(self._ends)


def _link_go(home: Path) -> Path:
    """A directory with the Go that the parts were built with, if any: built by another one, they are other parts."""
    directory = home / "go-on-path"
    directory.mkdir(exist_ok=True)
    if (go := shutil.which("go")) and not (directory / "go").exists():
        (directory / "go").symlink_to(go)
    return directory


@contextmanager
def open_shell(directory: Path, home: Path) -> Iterator[Shell]:
    shell = Shell(directory, home)
    try:
        yield shell
    finally:
        shell.close()


def copy_checkout(target: Path) -> None:
    """Copies the repository as it is after `make venv`: its files, and a virtual environment that imports them."""
    for path in list_files(ROOT):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target / path)
    environment = target / ".venv"
    venv.create(environment, symlinks=True)
    variables = {"base": str(environment), "platbase": str(environment)}
    installed, own = sysconfig.get_path("purelib"), sysconfig.get_path("purelib", "venv", variables)
    # The copy comes first; the other packages are those of the environment that runs the tests.
    Path(own, "checkout.pth").write_text(f"{target}\nimport site; site.addsitedir({installed!r})\n")
    for program in Path(sys.prefix, "bin").iterdir():
        if program.name == "gpu-platform":
            _, script = program.read_text().split("\n", 1)
            (environment / "bin" / program.name).write_text(f"#!{environment}/bin/python3\n{script}")
            (environment / "bin" / program.name).chmod(0o755)
        elif not (environment / "bin" / program.name).exists():
            (environment / "bin" / program.name).symlink_to(program)
    (environment / ".installed").touch()


def run_block(shell: Shell, page: Path, block: Block) -> None:
    """Runs every command of the block, and fails at the first whose end or output is not what the page shows."""
    for step in block.list_steps():
        deadline = Deadline(SETTLE_SECONDS)
        try:
            while (complaint := find_difference(step, ran := shell.run(step.command))) is not None:
                may_repeat = READS.match(step.command) or BUSY.search(ran.output)
                if not may_repeat or deadline.is_over:
                    raise StepError(complaint, ran)
                time.sleep(AGAIN_SECONDS)
        except StepError as error:
            raise AssertionError(_describe(page, step, str(error), error.ran)) from None


def find_difference(step: Step, ran: Ran) -> str | None:
    should_fail = step.shown is not None and FAILED.search("\n".join(step.shown)) is not None
    if should_fail != (ran.status != 0):
        return f"it ended with {ran.status}, and the page shows {'an error' if should_fail else 'none'}"
    if step.shown is None and FAILED.search(ran.output):
        # Bash drops the status of a command in `eval "$(…)"`.
        return "it ended with 0, and wrote an error"
    if step.shown is not None and not has_shape(step.shown, ran.output):
        return "its output has another shape"
    return None


def _describe(page: Path, step: Step, complaint: str, ran: Ran) -> str:
    shown = "" if step.shown is None else "\nthe page shows:\n" + "\n".join(step.shown)
    return f"{page}:{step.line}: {complaint}\n$ {step.command}{shown}\nthe command wrote:\n{ran.output}"
