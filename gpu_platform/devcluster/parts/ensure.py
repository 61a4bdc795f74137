"""Gets every part by the cheapest way that is allowed: cache, PATH, build. For the supervisor and the CLI."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.devcluster.parts.build import Builder
from gpu_platform.devcluster.parts.catalog import PARTS, Part
from gpu_platform.devcluster.parts.failures import explained_disk_errors
from gpu_platform.devcluster.parts.from_path import FromPath, NotOnPath, find_part_on_path
from gpu_platform.devcluster.parts.parts import Executable, Origin, Parts
from gpu_platform.devcluster.parts.processes import ProcessGroup
from gpu_platform.devcluster.parts.progress import Progress, SilentProgress, describe_line
from gpu_platform.devcluster.parts.recipe import Recipe, read_recipe
from gpu_platform.devcluster.parts.store import Store, choose_cache_root
from gpu_platform.devcluster.parts.toolchain import Go, ensure_go, find_go
from gpu_platform.devcluster.parts.wheel import find_nats_server

# Building Pulumi alone kept 1.65 of two cores busy, so a second build has room; each linker takes up to 2 GB,
# so a third could cost more than it brings.
JOBS_AT_ONCE = 2
BEAT_SECONDS = 1.0

T = TypeVar("T")


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
        found = _find_or_build(recipes, from_path, progress or SilentProgress())
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
    return None if isinstance(found, NotOnPath) else _executables(recipe, found.files.__getitem__, Origin.PATH)


def _require_on_path(recipe: Recipe) -> tuple[Executable, ...]:
    found = find_part_on_path(recipe)
    if isinstance(found, NotOnPath):
        raise DevClusterError(
            f"{recipe.part.name} {recipe.version} must come from PATH, but {found.why}: install that "
            "version, or let it be built with --from-path=auto."
        )
    return _executables(recipe, found.files.__getitem__, Origin.PATH)


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
