"""`gpu-platform restore`: becomes the restore's process. The command line does not import it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def restore(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this stack, such as gpu-unit/default.train or 'gpu-unit/*'; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")] = False,
    break_locks: Annotated[
        bool,
        typer.Option("--break-locks", help="Also remove locks of other hosts, when you know that nobody works there."),
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="The stack worker's settings; config/local/stack-worker.yaml shows every key.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result for machines.")] = False,
) -> None:
    """Make the cluster in use whole again from the Pulumi stacks, after `gpu-platform bootstrap up --refresh`."""
    options = ["--config", str(config)] if config else []
    options += [word for pattern in only or () for word in ("--only", pattern)]
    options += ["--dry-run"] if dry_run else []
    options += ["--break-locks"] if break_locks else []
    options += ["--json"] if as_json else []
    os.execv(sys.executable, [sys.executable, "-m", "stacks.restore", *options])  # noqa: S606 - no shell wanted
