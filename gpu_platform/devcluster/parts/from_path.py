"""Finds the parts that the machine already has: on PATH, whole, and of exactly the pinned version."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gpu_platform.devcluster.parts.pins import parse_printed_version
from gpu_platform.devcluster.parts.recipe import Recipe

# The slowest, `pulumi version`, takes 0.3 s; a hanging program must not hang us.
PROBE_TIMEOUT_SECONDS = 10


class FromPath(StrEnum):
    """Whether parts may come from PATH."""

    AUTO = "auto"
    """What is cached comes from the cache; else what fits comes from PATH; the rest is built."""
    NEVER = "never"
    ALWAYS = "always"
    """Everything comes from PATH or the run fails; nothing is built."""


@dataclass(frozen=True)
class OnPath:
    """A part that fits, as file name to path."""

    files: Mapping[str, Path]


@dataclass(frozen=True)
class NotOnPath:
    why: str


def find_part_on_path(recipe: Recipe) -> OnPath | NotOnPath:
    """A part fits when each binary that tells its version tells the pinned one, the rest lying beside it."""
    files: dict[str, Path] = {}
    for binary in recipe.part.binaries:
        if binary.version_arguments is None:
            continue
        found = find_binary_on_path(binary.name, binary.version_arguments, recipe.versions[binary.name])
        if isinstance(found, NotOnPath):
            return found
        files[binary.name] = found
    silent = [name for name in recipe.part.file_names if name not in files]
    if not silent:
        return OnPath(files)
    first = files[recipe.part.binaries[0].name]
    for folder in (first.parent, first.resolve().parent):
        if all(_is_executable(folder / name) for name in recipe.part.file_names):
            return OnPath({name: folder / name for name in recipe.part.file_names})
    return NotOnPath(f"{' and '.join(silent)} must lie beside {first} but do not")


def find_binary_on_path(name: str, version_arguments: Sequence[str], version: str) -> Path | NotOnPath:
    found = shutil.which(name)
    if found is None:
        return NotOnPath(f"{name} is not on PATH")
    told = _read_version(found, version_arguments)
    if told != version:
        return NotOnPath(f"{found} is version {told or 'unknown'}")
    return Path(found).absolute()


def _read_version(executable: str, arguments: Sequence[str]) -> str | None:
    try:
        answer = subprocess.run(
            [executable, *arguments],
            env=os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=PROBE_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_printed_version(answer.stdout)


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
