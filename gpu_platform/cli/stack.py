"""`gpu-platform stack`: becomes Pulumi on one of the platform's stacks. The command line does not import it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def stack(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Such as gpu-unit/default.train; `units stack` says it.")],
    config: Annotated[
        Path | None, typer.Option(help="The stack worker's settings; config/local/stack-worker.yaml shows every key.")
    ] = None,
) -> None:
    """Run Pulumi by hand on the stack of a unit or pool: `gpu-platform stack gpu-unit/default.train preview`."""
    options = ["--config", str(config)] if config else []
    os.execv(  # noqa: S606 - no shell wanted
        sys.executable, [sys.executable, "-m", "stacks.shell", *options, name, *context.args]
    )
