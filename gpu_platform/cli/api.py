"""`gpu-platform api`: becomes the REST API's process, with a stack worker beside it. Neither is imported here."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer


def api(
    config: Annotated[
        Path | None, typer.Option(help="Settings as YAML; config/local/api.yaml shows every key.")
    ] = None,
    with_stack_worker: Annotated[
        bool, typer.Option("--stack-worker/--no-stack-worker", help="Also start a stack worker, which ends with it.")
    ] = True,
    stack_worker_config: Annotated[
        Path | None, typer.Option(help="Its settings as YAML; config/local/stack-worker.yaml shows every key.")
    ] = None,
) -> None:
    """Run the REST API: it checks, accepts and answers. Ctrl-C or SIGTERM ends it."""
    options = ["--config", str(config)] if config else []
    if with_stack_worker:
        of_worker = ["--config", str(stack_worker_config)] if stack_worker_config else []
        # Not waited for: the API becomes its parent, and units are served with or without it.
        tied = ["--tied", str(os.getpid())]
        subprocess.Popen([sys.executable, "-m", "stacks.worker", *tied, *of_worker], start_new_session=True)
    os.execv(sys.executable, [sys.executable, "-m", "platform_api", *options])  # noqa: S606 - no shell wanted
