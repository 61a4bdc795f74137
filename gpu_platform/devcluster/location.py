"""Which cluster a command is about when it names no directory: one nearby, or else the one that runs."""

import os
from collections.abc import Sequence
from pathlib import Path

from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.devcluster.lifecycle import SUPERVISOR, is_running

DIRECTORY_NAME = ".dev"


def find_nearby(start: Path) -> Path | None:
    """The nearest `.dev` that holds a cluster, running or not: in this directory, or in one above it."""
    candidates = (parent / DIRECTORY_NAME for parent in (start, *start.parents))
    return next((each for each in candidates if _is_own(each)), None)


def _is_own(root: Path) -> bool:
    """Whether this user's cluster is there. The record of another user must not decide which programs run."""
    try:
        return ClusterDirectory(root).record.stat().st_uid == os.getuid()
    except OSError:
        return False


def list_running(proc: Path = Path("/proc")) -> tuple[Path, ...]:
    """The directories of this user's clusters that run on this machine, by their supervisors' command lines."""
    named = {Path(words[-1]) for words in _list_command_lines(proc) if words[1:-1] == list(SUPERVISOR)}
    return tuple(sorted(root for root in named if is_running(ClusterDirectory(root))))


def choose_directory(looked_in: Path, nearby: Path | None, running: Sequence[Path]) -> Path:
    """The directory of the one cluster that can be meant; DevClusterError names where to look, or which to choose from.

    | nearby | running  | →                       |
    | ------ | -------- | ----------------------- |
    | yes    | any      | the one nearby          |
    | no     | one      | that one                |
    | no     | none     | refused: start one      |
    | no     | several  | refused: name one       |
    """
    if nearby is not None:
        return nearby
    if len(running) == 1:
        return running[0]
    looked = f"there is no cluster in {looked_in}, nor in the {DIRECTORY_NAME} of a directory above"
    if not running:
        raise DevClusterError(
            f"{looked}, and none runs on this machine; name its directory with --dir, "
            "or start one here with `gpu-platform dev up`"
        )
    raise DevClusterError(f"{looked}; name one of those that run with --dir: {', '.join(map(str, running))}")


def _list_command_lines(proc: Path) -> list[list[str]]:
    return [words for entry in proc.iterdir() if entry.name.isdigit() and (words := _read_command_line(entry))]


def _read_command_line(process: Path) -> list[str]:
    try:
        if process.stat().st_uid != os.getuid():
            return []
        return os.fsdecode((process / "cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        # It ended meanwhile.
        return []
