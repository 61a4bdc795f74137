"""The `gpu-platform` command: wires the sub-commands and turns known errors into one sentence."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpu_platform.cli import (
    drift,
    functions,
    health,
    invocations,
    jobs,
    keys,
    pools,
    preview,
    processes,
    specs,
    stock,
    storages,
    units,
    worker,
)
from gpu_platform.cli.extras import add_commands
from gpu_platform.cli.output import NO_ROOM, accept_every_character, end_without_room, print_error
from gpu_platform.cli.plans.digest import NoPlanError
from gpu_platform.client import NotConfiguredError, PlatformError, UnsendableError
from gpu_platform.process import SentenceError

NAME = "gpu-platform"

# What a shell reports for a program that Ctrl-C ended.
INTERRUPTED = 130

FAILED, UNUSABLE = 1, 2
UNUSABLE_ERRORS = (NotConfiguredError, UnsendableError, NoPlanError, SentenceError)
"""What the command was given cannot be used; nothing was changed."""


class _Sentences(TyperGroup):
    """Commands raise what they know; a person reads a sentence, a script an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (PlatformError, SentenceError) as error:
            print_error(error)
            raise typer.Exit(UNUSABLE if isinstance(error, UNUSABLE_ERRORS) else FAILED) from None
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
app.add_typer(jobs.app, name="ops")
app.command("health")(health.health)
app.command("drift")(drift.drift)
add_commands(app, "dev", "embedded")
app.command("api")(processes.api)
app.command("reconciler")(processes.reconciler)
app.command("stack", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(processes.stack)
app.command("stack-worker")(processes.stack_worker)
app.command("worker")(worker.worker)
app.command("restore")(processes.restore)
app.add_typer(keys.app, name="keys")
add_commands(app, "queue", "server")
app.command("bootstrap")(processes.bootstrap)
app.command("preview")(preview.preview)
add_commands(app, "tools", "embedded")


def run() -> None:
    accept_every_character()
    try:
        app(prog_name=NAME)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        end_without_room(error)
