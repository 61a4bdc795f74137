"""Runners with the real CLI and a provider that keeps its objects in memory; every CLI process is counted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi

from gpu_platform.devcluster.parts import ensure_parts
from gpu_platform.domain.stacks import StackAddress, StackKind
from stacks.runner import RunnerSettings, StackRunner
from stacks.runner.backend import StackFiles, shard_of
from tests.support.shelf_provider import Shelf, Shelves, serve

PASSPHRASE = "correct horse battery staple"  # noqa: S105 -- protects nothing
SECRET = "hunter2-in-clear"  # noqa: S105 -- protects nothing

Program = Callable[[], None]

COUNTING = """#!/bin/sh
echo "$$ $@" >> {calls}
exec {pulumi} "$@"
"""


@dataclass
class RunnerBench:
    """One provider, one state directory, and as many runners as a test wants."""

    directory: Path
    port: int
    shelves: Shelves
    pulumi: Path

    @property
    def settings(self) -> RunnerSettings:
        return RunnerSettings(
            backend_url=f"file://{self.state}",
            work_directory=self.directory / "work",
            passphrase=PASSPHRASE,
            pulumi=self.pulumi,
            up_timeout=60,
            grace=2,
        )

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def build_runner(self, **changes: Any) -> StackRunner:
        return StackRunner(replace(self.settings, **changes), self.port)

    def files(self, address: StackAddress) -> StackFiles:
        return StackFiles(self.state / shard_of(address.stack), address)

    def calls(self) -> list[str]:
        """The CLI's commands so far, `version` left out."""
        calls = (line.partition(" ")[2] for line in self._read_calls())
        return [call.removeprefix("--non-interactive ") for call in calls if call != "version"]

    def list_pids(self) -> list[int]:
        return [int(line.partition(" ")[0]) for line in self._read_calls()]

    def _read_calls(self) -> list[str]:
        return (self.directory / "calls").read_text().splitlines()

    def list_files(self) -> set[Path]:
        """What is there, without the CLI's own logs."""
        return {path for path in self.directory.rglob("*") if path.is_file() and "logs" not in path.parts}


@contextmanager
def open_bench(directory: Path) -> Iterator[RunnerBench]:
    script = directory / "pulumi"
    script.write_text(COUNTING.format(calls=directory / "calls", pulumi=find_pulumi()))
    script.chmod(0o755)
    shelves = Shelves()
    with serve(shelves) as port:
        yield RunnerBench(directory, port, shelves, script)


def find_pulumi() -> Path:
    return ensure_parts()["pulumi"]


def unit(name: str) -> StackAddress:
    return StackAddress(StackKind.GPU_UNIT, "acme", name)


def build_program(name: str, *, secret: str | None = None, **properties: Any) -> Program:
    """One shelf. Where it is, is exported."""

    def program() -> None:
        hidden = {"password": pulumi.Output.secret(secret)} if secret else {}
        shelf = Shelf(name, **properties, **hidden)
        pulumi.export("where", shelf.shelf)

    return program
