"""Builds one part into its place in the cache. Decides nothing: the recipe says what to run."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.devcluster.parts.catalog import Script
from gpu_platform.devcluster.parts.failures import explain_build
from gpu_platform.devcluster.parts.processes import ProcessGroup
from gpu_platform.devcluster.parts.recipe import GoBuild, Recipe, clean_environment
from gpu_platform.devcluster.parts.store import Store


@dataclass(frozen=True)
class Builder:
    go: Path
    go_version: str
    store: Store
    group: ProcessGroup

    def place(self, recipe: Recipe) -> Path:
        return self.store.root / recipe.entry_name(self.go_version)

    def ensure(self, recipe: Recipe, on_line: Callable[[str], None]) -> bool:
        """Builds the part into its place. Returns whether this run did, or another was quicker."""
        entry = recipe.entry_name(self.go_version)
        return self.store.ensure(
            entry,
            recipe.part.file_names,
            lambda target: self._fill(target, recipe, self.store.log_path(entry), on_line),
            pause=self.group.pause,
            on_wait=lambda: on_line("waiting for another run that builds it"),
        )

    def _fill(self, target: Path, recipe: Recipe, log_path: Path, on_line: Callable[[str], None]) -> None:
        # Go's work directory inside ours: what a killed build leaves is removed with it.
        work = target / "go-work"
        work.mkdir()
        environment = clean_environment(os.environ, recipe.environment) | {"GOTMPDIR": str(work)}
        with log_path.open("w") as log:
            for build in recipe.builds:
                run = GoRun(self.group, self.go, build, environment, recipe.part.name, log, on_line)
                output = target / build.output_name if build.output_name else f"{target}/"
                run("build", *build.arguments, "-o", output, *build.packages)
                for script in build.scripts:
                    _copy_script(run, script, target)
        shutil.rmtree(work)


@dataclass(frozen=True)
class GoRun:
    """Runs Go commands of one build, with its output in the part's log."""

    group: ProcessGroup
    go: Path
    build: GoBuild
    environment: dict[str, str]
    part: str
    log: TextIO
    on_line: Callable[[str], None]

    def __call__(self, *arguments: str | Path) -> list[str]:
        output: list[str] = []

        def take(line: str) -> None:
            output.append(line)
            self.log.write(f"{line}\n")
            self.on_line(line)

        code = self.group.run(
            [self.go, *arguments], folder=self.build.folder, environment=self.environment, on_line=take
        )
        if code:
            self.log.flush()
            raise DevClusterError(explain_build(self.part, output, Path(self.log.name)))
        return output


def _copy_script(run: GoRun, script: Script, target: Path) -> None:
    module = Path(run("list", "-m", "-f", "{{.Dir}}", script.module)[-1])
    copy = target / script.name
    shutil.copyfile(module / script.path, copy)
    copy.chmod(0o755)
