"""A tiny Go module, and the processes that build it."""

import errno
import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import wait_until

DEADLINE_SECONDS = 300.0
"""Against tests that hang: the compiler shares the machine with others."""

ENSURE = """
import json, pathlib, sys
from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.parts import FromPath, ensure_parts
from gpu_platform.devcluster.parts.recipe import Binary, GoModule, Part, Script

folder = pathlib.Path(sys.argv[1])
module = GoModule(
    folder,
    (Binary("hello", "example.invalid/hello"),),
    stamps=(("main.version", "{version}"),),
    scripts=(Script("example.invalid/hello", "scripts/hello-exec"),),
)
try:
    parts = ensure_parts(from_path=FromPath.NEVER, parts=[Part("hello", (module,))])
except DevClusterError as error:
    sys.exit(str(error))
print(json.dumps([str(parts["hello"]), parts.executables[0].origin]))
"""


@dataclass(frozen=True)
class Workbench:
    """A Go module to build and an environment to build it in."""

    folder: Path
    cache: Path
    environment: dict[str, str] = field(default_factory=dict)

    def write_module(self, *, functions: int = 0, more: str = "") -> None:
        hello = self.folder / "hello"
        (hello / "scripts").mkdir(parents=True, exist_ok=True)
        (self.folder / "go.mod").write_text(
            "module example.invalid/tools/hello\n\ngo 1.26.0\n\nrequire example.invalid/hello v1.2.3\n\n"
            "replace example.invalid/hello => ./hello\n"
        )
        (self.folder / "go.sum").touch()
        (hello / "go.mod").write_text("module example.invalid/hello\n\ngo 1.26.0\n")
        (hello / "scripts" / "hello-exec").write_text("#!/bin/sh\n")
        # The random word keeps Go's own cache from answering.
        body = [f'package main\n\nimport "os"\n\nvar version, word = "", "{uuid.uuid4()}"\n']
        body += [f"func f{n}(m map[int]string) {{ m[{n}] += m[len(m)] + word }}\n" for n in range(functions)]
        calls = "".join(f"\tf{n}(m)\n" for n in range(functions))
        body.append(f"func main() {{\n\tm := map[int]string{{}}\n{calls}\tos.Stdout.WriteString(version + m[-1])\n}}\n")
        (hello / "main.go").write_text("".join(body) + more)

    def start(self, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-X", "dev", "-W", "error", "-c", ENSURE, self.folder],
            env=self.environment | changes,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ensure(self, **changes: str) -> tuple[Path, str]:
        """Where the program is, and how it got there."""
        with self.start(**changes) as run:
            answer, errors = run.communicate(timeout=DEADLINE_SECONDS)
        assert run.returncode == 0, errors
        assert errors == ""
        path, origin = json.loads(answer)
        return Path(path), origin

    def fail(self, **changes: str) -> str:
        with self.start(**changes) as run:
            _, errors = run.communicate(timeout=DEADLINE_SECONDS)
        assert run.returncode == 1
        return errors.strip()

    def list_processes(self, *, apart_from: int) -> list[int]:
        """Every process with this cache in its environment: guard, go, compilers, linkers."""
        mark = str(self.cache).encode()
        return [pid for pid in list_pids() if pid != apart_from and mark in read_environment(pid)]

    def await_compiler(self, run: subprocess.Popen[str]) -> None:
        def compiles() -> bool:
            assert run.poll() is None, "the build ended before it could be interrupted"
            return any(b"/compile\0" in read_command(pid) for pid in self.list_processes(apart_from=run.pid))

        wait_until(compiles)


def list_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and path.name != str(os.getpid())]


def read_environment(pid: int) -> bytes:
    return read_process_file(pid, "environ")


def read_command(pid: int) -> bytes:
    return read_process_file(pid, "cmdline")


def read_process_file(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError as error:
        # Gone, or not ours: neither is a process of this test.
        if error.errno in {errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM}:
            return b""
        raise
