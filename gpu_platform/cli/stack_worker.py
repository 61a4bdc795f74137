"""`gpu-platform stack-worker`: becomes the stack worker's process. The command line does not import it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def stack_worker(
    config: Annotated[
        Path | None, typer.Option(help="Settings as YAML; config/local/stack-worker.yaml shows every key.")
    ] = None,
) -> None:
    """Run the stack worker: it keeps a Pulumi stack for each unit and pool. Ctrl-C or SIGTERM ends it."""
    options = ["--config", str(config)] if config else []
    os.execv(sys.executable, [sys.executable, "-m", "stacks.worker", *options])  # noqa: S606 - no shell wanted
