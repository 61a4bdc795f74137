"""`gpu-platform api`: becomes the REST API's process. The command line starts processes; it does not import them."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def api(
    config: Annotated[
        Path | None, typer.Option(help="Settings as YAML; config/local/api.yaml shows every key.")
    ] = None,
) -> None:
    """Run the REST API: it checks, accepts and answers. Ctrl-C or SIGTERM ends it."""
    options = ["--config", str(config)] if config else []
    os.execv(sys.executable, [sys.executable, "-m", "platform_api", *options])  # noqa: S606 - no shell wanted
