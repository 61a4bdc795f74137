"""The commands that become a process of the platform: `api`, `reconciler`, `stack-worker`, `restore`, `bootstrap` and
`stack`. The command line starts these programs; it does not import them."""

import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gpu_platform.cli.extras import Extra, require_extra

WorkerSettings = Annotated[
    Path | None, typer.Option(help="The stack worker's settings; config/local/stack-worker.yaml shows every key.")
]


class Action(StrEnum):
    UP = "up"
    PREVIEW = "preview"
    REFRESH = "refresh"
    DESTROY = "destroy"


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
    require_extra("server")
    if with_stack_worker:
        # Not waited for: the API becomes its parent, and units are served with or without it.
        tied = ["--tied", str(os.getpid())]
        worker = [sys.executable, "-m", "stacks.worker", *tied, *_list_config(stack_worker_config)]
        subprocess.Popen(worker, start_new_session=True)
    _become("platform_api", *_list_config(config))


def reconciler(
    config: Annotated[
        Path | None, typer.Option(help="Settings as YAML; config/local/reconciler.yaml shows every key.")
    ] = None,
) -> None:
    """Run the reconciler: it makes the cluster match what was asked for. Ctrl-C or SIGTERM ends it."""
    _become("reconciler", *_list_config(config))


def stack_worker(
    config: Annotated[
        Path | None, typer.Option(help="Settings as YAML; config/local/stack-worker.yaml shows every key.")
    ] = None,
) -> None:
    """Run the stack worker: it keeps a Pulumi stack for each unit and pool. Ctrl-C or SIGTERM ends it."""
    _become("stacks.worker", *_list_config(config))


def stack(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Such as gpu-unit/default.train; `units stack` says it.")],
    config: WorkerSettings = None,
) -> None:
    """Run Pulumi by hand on the stack of a unit or pool: `gpu-platform stack gpu-unit/default.train preview`."""
    _become("stacks.shell", *_list_config(config), name, *context.args)


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
    config: WorkerSettings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result for machines.")] = False,
) -> None:
    """Make the cluster in use whole again from the Pulumi stacks, after `gpu-platform bootstrap up --refresh`."""
    patterns = [word for pattern in only or () for word in ("--only", pattern)]
    switches = _list_switches({"--dry-run": dry_run, "--break-locks": break_locks, "--json": as_json})
    _become("stacks.restore", *_list_config(config), *patterns, *switches)


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
    switches = _list_switches({"--refresh": refresh, "--expect-no-changes": expect_no_changes, "--json": as_json})
    _become("infra.bootstrap", action, "--stack", stack, *switches, extra="embedded")


def _list_config(config: Path | None) -> list[str]:
    return ["--config", str(config)] if config else []


def _list_switches(switches: dict[str, bool]) -> list[str]:
    return [switch for switch, is_on in switches.items() if is_on]


def _become(module: str, *options: str, extra: Extra = "server") -> NoReturn:
    require_extra(extra)
    os.execv(sys.executable, [sys.executable, "-m", module, *options])  # noqa: S606 - no shell wanted
