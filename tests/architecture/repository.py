"""Which files the repository consists of."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def list_files(root: Path = ROOT) -> tuple[Path, ...]:
    """Every file that is, or would be, committed; relative to the root."""
    return list_files_with_git(root) if (root / ".git").exists() else list_files_by_walking(root)


def list_python_files(root: Path = ROOT) -> tuple[Path, ...]:
    return tuple(path for path in list_files(root) if path.suffix == ".py")


def list_files_with_git(root: Path) -> tuple[Path, ...]:
    # New files count too: a rule that speaks only after the commit speaks too late.
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    paths = {Path(os.fsdecode(name)) for name in listed.split(b"\0") if name}
    return tuple(sorted(path for path in paths if (root / path).is_file()))


def list_files_by_walking(root: Path) -> tuple[Path, ...]:
    """For an unpacked source archive. Honours those lines of .gitignore that name a directory or a suffix."""
    ignored = {".git/", *(root / ".gitignore").read_text().split()}
    found: list[Path] = []
    for directory, subdirectories, names in os.walk(root):
        subdirectories[:] = [
            name
            for name in subdirectories
            if f"{name}/" not in ignored and not (name.endswith(".egg-info") and "*.egg-info/" in ignored)
        ]
        here = Path(directory).relative_to(root)
        found += [here / name for name in names if (root / here / name).is_file()]
    return tuple(sorted(found))
