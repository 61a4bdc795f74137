"""`gpu-platform bootstrap`: becomes the Pulumi program's own runner. The command line does not import it."""

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer


class Action(StrEnum):
    UP = "up"
    PREVIEW = "preview"
    REFRESH = "refresh"
    DESTROY = "destroy"


def bootstrap(
    action: Annotated[Action, typer.Argument(help="What to do with the stack.")],
    stack: Annotated[str, typer.Option(help="Which Pulumi.<stack>.yaml.")] = "dev",
    refresh: Annotated[
        bool, typer.Option("--refresh", help="With up: look at the cluster first, for one that has lost something.")
    ] = False,
    expect_no_changes: Annotated[bool, typer.Option("--expect-no-changes", help="Fail when anything changes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts of changes for machines.")] = False,
) -> None:
    """Make the cluster in use into the platform, with Pulumi, from a checkout of the repository."""
    options = ["--stack", stack]
    options += ["--refresh"] if refresh else []
    options += ["--expect-no-changes"] if expect_no_changes else []
    options += ["--json"] if as_json else []
    os.execv(sys.executable, [sys.executable, "-m", "infra.bootstrap", action, *options])  # noqa: S606 - no shell wanted
