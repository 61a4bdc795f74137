"""`gpu-platform tools`: gets the real parts and says where they are."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gpu_platform.cli.output import UNCUT
from gpu_platform.devcluster.parts import FromPath, Parts, ensure_parts, shown_progress


def tools(
    from_path: Annotated[
        FromPath,
        typer.Option(help="Take parts of exactly the pinned version from PATH: instead of building, never, or always."),
    ] = FromPath.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print the parts as JSON.")] = False,
) -> None:
    """Get the real parts: Kubernetes, etcd, kwok, Pulumi and NATS. The first run builds them, once."""
    messages = Console(stderr=True)
    try:
        with shown_progress(messages) as progress:
            parts = ensure_parts(from_path=from_path, progress=progress)
    except KeyboardInterrupt:
        messages.print("Interrupted: nothing is left running, and the next run continues from here.")
        raise
    if as_json:
        typer.echo(render_json(parts))
    else:
        Console(soft_wrap=True, width=UNCUT).print(render_table(parts))


def render_json(parts: Parts) -> str:
    rows = [
        {
            "part": executable.name,
            "version": executable.version,
            "path": str(executable.path),
            "source": executable.origin.value,
            "seconds": round(executable.took.total_seconds(), 1) if executable.took else None,
        }
        for executable in parts.executables
    ]
    return json.dumps(rows, indent=2)


def render_table(parts: Parts) -> Table:
    table = Table("part", "version", "source", "seconds", "path", box=None, header_style="bold")
    for executable in parts.executables:
        took = f"{executable.took.total_seconds():.0f}" if executable.took else ""
        table.add_row(executable.name, executable.version, executable.origin.value, took, str(executable.path))
    return table
