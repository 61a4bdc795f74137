"""`gpu-platform dev`: the embedded cluster, from the command line."""

import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gpu_platform.cli.output import print_line, print_remark
from gpu_platform.devcluster import DevClusterError, lifecycle
from gpu_platform.devcluster.configuration import cluster_environment, shell_exports
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.lifecycle import DIRECTORY_NAME, choose_directory, find_nearby, list_running
from gpu_platform.devcluster.parts import FromPath, ensure_parts, shown_progress
from gpu_platform.devcluster.record import ClusterStatus, ProcessStatus, get_record, resident_bytes

app = typer.Typer(help="The embedded cluster: real parts on this machine, for development.", no_args_is_help=True)

STATE_COLOURS = {
    "ready": "green",
    "done": "green",
    "starting": "yellow",
    "restarting": "yellow",
    "waiting": "dim",
    "stopped": "red",
}
FOLLOW_SECONDS = 0.2
TABLE_WIDTH = 100

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="Where the cluster keeps its state: by default .dev, here or in the nearest directory above."
    ),
]
RunningDirectory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Where the cluster keeps its state: by default .dev, here or in the nearest directory above; "
        "else that of the one cluster that runs.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print for machines.")]


class Only(StrEnum):
    CLUSTER = "cluster"


@app.command()
def up(
    directory: Directory = None,
    nodes: Annotated[int | None, typer.Option(min=0, max=500, help="Simulated GPU nodes (4).")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, max=64, help="GPUs of each node (8).")] = None,
    only: Annotated[Only | None, typer.Option(help="Leave out the bootstrap and the platform's processes.")] = None,
    from_path: Annotated[FromPath, typer.Option(help="Take fitting parts from PATH.")] = FromPath.AUTO,
    foreground: Annotated[bool, typer.Option(help="Stay; Ctrl-C stops the cluster.")] = False,
) -> None:
    """Start the cluster, or see that it runs."""
    place = _find_own(directory)
    console = Console()
    if place.root not in (others := list_running()) and others:
        print_remark(f"note: a cluster runs in {_name(others)}; this starts another one, in {place.root}")
    with shown_progress(console) as progress:
        parts = ensure_parts(from_path=from_path, progress=progress)
    started_at = time.monotonic()
    wish = lifecycle.Wish(nodes=nodes, gpus=gpus, platform=only is None, tied=foreground)
    with _shown_status(console) as show:
        record = lifecycle.up(place, parts, wish, show)
    console.print(
        f"[bold green]ready[/] in {time.monotonic() - started_at:.1f} s: {record.nodes} simulated nodes "
        f"with {record.gpus} GPUs each, and the host node"
    )
    if foreground:
        _stay(place)
    else:
        command, option = _find_command(), _option(place)
        console.print(f'  use it:   eval "$({command} dev env{option})"', soft_wrap=True, markup=False)
        console.print(f"  stop it:  {command} dev down{option}", soft_wrap=True, markup=False)


@app.command()
def down(directory: Directory = None) -> None:
    """Stop the cluster and keep its data."""
    place = _find_own(directory)
    if lifecycle.down(place):
        print_line("stopped; its data stays")
        return
    print_line(f"nothing was running in {place.root}")
    if others := list_running():
        print_remark(f"a cluster runs in {_name(others)}; `gpu-platform dev down --dir {others[0]}` stops it")


@app.command()
def status(directory: RunningDirectory = None, as_json: Json = False) -> None:
    """Show what runs. Exits with 1 when the cluster is not ready, with 2 when there is none."""
    current = lifecycle.current_status(_find(directory))
    if as_json:
        typer.echo(json.dumps(asdict(current), indent=2))
    else:
        console = Console()
        # Half an address helps nobody; a narrow terminal wraps the line instead.
        console.width = max(console.width, TABLE_WIDTH)
        console.print(_status_table(current, time.time()))
        console.print(f"cluster: [bold]{current.phase}[/]" + (f" ({current.error})" if current.error else ""))
    if current.phase != "ready":
        raise typer.Exit(1)


@app.command()
def logs(
    process: Annotated[str, typer.Argument(help="A process of `dev status`, `supervisor` or `audit`.")],
    directory: RunningDirectory = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
) -> None:
    """Show a process's log."""
    place = _find(directory)
    path = place.log_of(process)
    if not path.exists():
        known = ", ".join(sorted(log.stem for log in place.logs.glob("*.log"))) or "none yet"
        raise DevClusterError(f"there is no log of {process!r} in {place.logs}; there are: {known}")
    with path.open(errors="replace") as log:
        for line in log.readlines()[-lines:] if lines else ():
            typer.echo(line, nl=False)
        log.seek(0, os.SEEK_END)
        while follow:
            if text := log.read():
                typer.echo(text, nl=False)
            else:
                time.sleep(FOLLOW_SECONDS)


@app.command()
def env(directory: RunningDirectory = None, as_json: Json = False) -> None:
    """Print the shell lines that make this cluster the one in use: eval "$(gpu-platform dev env)"."""
    place = _find(directory)
    variables = cluster_environment(place, get_record(place), os.environ.get("PATH", ""))
    typer.echo(json.dumps(variables, indent=2) if as_json else shell_exports(variables))


def _find(said: Path | None) -> ClusterDirectory:
    """The cluster that is meant, also one that runs elsewhere; that is told."""
    if said is not None:
        return ClusterDirectory(said.resolve())
    here = Path.cwd()
    nearby = find_nearby(here)
    root = choose_directory(here / DIRECTORY_NAME, nearby, () if nearby else list_running())
    if nearby is None:
        print_remark(f"using the cluster in {root}")
    return ClusterDirectory(root)


def _find_own(said: Path | None) -> ClusterDirectory:
    """For what starts and stops clusters: never one that runs elsewhere."""
    here = Path.cwd()
    return ClusterDirectory(said.resolve() if said else find_nearby(here) or here / DIRECTORY_NAME)


def _option(place: ClusterDirectory) -> str:
    return "" if place.root == Path.cwd() / DIRECTORY_NAME else f" --dir {shlex.quote(str(place.root))}"


def _find_command() -> str:
    """The name of this command where PATH has it, else its path: what is printed works in the shell that reads it."""
    path = Path(sys.executable).with_name("gpu-platform")
    return "gpu-platform" if shutil.which("gpu-platform") else shlex.quote(str(path))


def _name(directories: Sequence[Path]) -> str:
    return " and in ".join(map(str, directories))


def _stay(place: ClusterDirectory) -> None:
    """Wait for Ctrl-C or SIGTERM, or for the cluster's own end, and leave nothing running."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    try:
        while lifecycle.is_running(place):
            time.sleep(FOLLOW_SECONDS)
        raise DevClusterError(f"the cluster ended by itself; see {place.log_of('supervisor')}")
    except KeyboardInterrupt:
        console.print("stopping …")
    finally:
        lifecycle.down(place)


@contextmanager
def _shown_status(console: Console) -> Iterator[Callable[[ClusterStatus], None]]:
    """A table that follows the start, where somebody looks at it; one line per ready process elsewhere."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda current: live.update(_status_table(current, time.time()))
        return
    said: set[str] = set()

    def say(current: ClusterStatus) -> None:
        for process in current.processes:
            if process.is_fine and process.name not in said:
                said.add(process.name)
                where = f"is ready at {process.address}" if process.state == "ready" else f"is done: {process.address}"
                console.print(f"  {process.name} {where}")

    yield say


def _status_table(current: ClusterStatus, now: float) -> Table:
    table = Table("PROCESS", "STATE", "PID", "ADDRESS", "MEMORY", "AGE", "RESTARTS", box=None, pad_edge=False)
    for process in current.processes:
        colour = STATE_COLOURS[process.state]
        table.add_row(
            process.name,
            f"[{colour}]{process.state}[/]",
            str(process.pid or "–"),
            process.address,
            _memory(process),
            _age(process, now),
            str(process.restarts),
        )
    return table


def _memory(process: ProcessStatus) -> str:
    resident = resident_bytes(process.pid) if process.pid else None
    return f"{resident / 2**20:.0f} MiB" if resident else "–"


def _age(process: ProcessStatus, now: float) -> str:
    if process.pid is None or process.started_at is None:
        return "–"
    seconds = int(now - process.started_at)
    return f"{seconds}s" if seconds < 60 else f"{seconds // 60}m{seconds % 60}s"
