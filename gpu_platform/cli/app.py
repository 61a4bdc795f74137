"""The `gpu-platform` command: wires the sub-commands and turns known errors into one sentence."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpu_platform.cli import (
    api,
    bootstrap,
    dev,
    drift,
    functions,
    health,
    invocations,
    keys,
    ops,
    pools,
    preview,
    queue,
    reconciler,
    restore,
    specs,
    stack,
    stack_worker,
    stock,
    storages,
    tools,
    units,
    worker,
)
from gpu_platform.cli.errors import PlatformError
from gpu_platform.cli.output import NO_ROOM, accept_every_character, end_without_room, print_error
from gpu_platform.devcluster import DevClusterError

NAME = "gpu-platform"

# What a shell reports for a program that Ctrl-C ended.
INTERRUPTED = 130


class _Sentences(TyperGroup):
    """Commands raise what they know; a person reads a sentence, a script an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PlatformError as error:
            print_error(error)
            raise typer.Exit(error.exit_code) from None
        except DevClusterError as error:
            print_error(error)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name=NAME,
    cls=_Sentences,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        # Here, because it takes longer to import than most commands take.
        from importlib.metadata import version

        typer.echo(f"{NAME} {version(NAME)}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Run and operate the GPU platform."""


app.add_typer(units.app, name="units")
app.add_typer(storages.app, name="storages")
app.add_typer(functions.app, name="functions")
app.command("invoke")(invocations.invoke)
app.add_typer(invocations.app, name="invocations")
app.add_typer(invocations.dead_letters, name="dead-letters")
app.add_typer(specs.app, name="specs")
app.add_typer(stock.app, name="stock")
app.add_typer(pools.app, name="pools")
app.add_typer(ops.app, name="ops")
app.command("health")(health.health)
app.command("drift")(drift.drift)
app.add_typer(dev.app, name="dev")
app.command("api")(api.api)
app.command("reconciler")(reconciler.reconciler)
app.command("stack", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(stack.stack)
app.command("stack-worker")(stack_worker.stack_worker)
app.command("worker")(worker.worker)
app.command("restore")(restore.restore)
app.add_typer(keys.app, name="keys")
app.add_typer(queue.app, name="queue")
app.command("bootstrap")(bootstrap.bootstrap)
app.command("preview")(preview.preview)
app.command("tools")(tools.tools)


def run() -> None:
    accept_every_character()
    try:
        app(prog_name=NAME)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        end_without_room(error)
