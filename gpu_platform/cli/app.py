"""The `gpu-platform` command: wires the sub-commands and turns known errors into one sentence."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from gpu_platform.cli import dev, reconciler, tools
from gpu_platform.devcluster.errors import DevClusterError

app = typer.Typer(
    name="gpu-platform",
    help="Run and operate the GPU platform.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("tools")(tools.tools)
app.command("reconciler")(reconciler.reconciler)
app.add_typer(dev.app, name="dev")


def main() -> None:
    try:
        app()
    except DevClusterError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)
