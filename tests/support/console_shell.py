"""A reader's shell: clean, in a checkout of its own, running the blocks of pages one after the other."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.repository import ROOT, list_files
from tests.support.console_blocks import Block, Step
from tests.support.console_shapes import has_shape
from tests.support.waiting import PATIENCE_SECONDS, Deadline

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
