"""`gpu-platform reconciler`: becomes the daemon. The command line starts processes; it does not import them."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def reconciler(
    config: Annotated[
        Path | None, typer.Option(help="Settings as YAML; config/local/reconciler.yaml shows every key.")
    ] = None,
) -> None:
    """Run the reconciler: it makes the cluster match what was asked for. Ctrl-C or SIGTERM ends it."""
    options = ["--config", str(config)] if config else []
    os.execv(sys.executable, [sys.executable, "-m", "reconciler", *options])  # noqa: S606 - no shell wanted
