"""Small Pulumi projects, each with a state of its own, run by the real CLI as a person would."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.support.clusters import RunningCluster

LIMIT_SECONDS = 400
STACK = "test"

LISTING = ("-m", "pip", "list", "-v", "--format", "json")
PYTHON = """#!/bin/sh
[ "$*" = "{listing}" ] && exec cat {packages}
exec {python} "$@"
"""
"""The language host asks for all packages at every start, which takes pip longer than the program: once is enough."""


@dataclass
class PulumiProject:
    directory: Path
    environment: dict[str, str]
    settings: dict[str, str] = field(default_factory=dict)
    """What the program finds in its environment."""

    name: str = "plugin"

    @classmethod
    def create(
        cls, directory: Path, cluster: RunningCluster, program: str, *, name: str = "plugin", **settings: str
    ) -> "PulumiProject":
        state = directory / "state"
        state.mkdir(parents=True)
        (directory / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
        (directory / "__main__.py").write_text(program)
        environment = {
            **os.environ,
            **cluster.environment(os.environ["PATH"]),
            "PULUMI_BACKEND_URL": f"file://{state}?metadata=skip",
            "PULUMI_HOME": str(directory / "home"),
            "PULUMI_PYTHON_CMD": str(_write_python(directory)),
        }
        project = cls(directory, environment, dict(settings), name)
        project.succeed("stack", "init", STACK)
        return project

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["pulumi", "--non-interactive", "--color", "never", *arguments],
            cwd=self.directory,
            env={**self.environment, **self.settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=LIMIT_SECONDS)
        return process.returncode, said

    def succeed(self, *arguments: str) -> str:
        code, said = self.run(*arguments)
        assert code == 0, said
        return said

    def fail(self, *arguments: str) -> str:
        code, said = self.run(*arguments)
        assert code != 0, said
        assert "Traceback" not in said, said
        return said

    def up(self, *options: str) -> str:
        return self.succeed("up", "--yes", "--skip-preview", *options)

    def destroy(self) -> str:
        return self.succeed("destroy", "--yes", "--skip-preview")

    @property
    def state_file(self) -> Path:
        return self.directory / "state" / ".pulumi" / "stacks" / self.name / f"{STACK}.json"


def _write_python(directory: Path) -> Path:
    python, packages = directory / "python", directory / "packages.json"
    packages.write_bytes(_list_packages())
    python.write_text(PYTHON.format(listing=" ".join(LISTING), packages=packages, python=sys.executable))
    python.chmod(0o755)
    return python


@cache
def _list_packages() -> bytes:
    return subprocess.check_output([sys.executable, *LISTING])
