"""Commands that need more than the base installation: each says in one sentence which extra is missing.

| extra    | commands                                                                                      |
| -------- | --------------------------------------------------------------------------------------------- |
| server   | api, reconciler, stack, stack-worker, restore, worker, queue                                  |
| embedded | dev, tools, bootstrap                                                                         |
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import typer

from gpu_platform.process import SentenceError

Extra = Literal["server", "embedded"]

MARKS: dict[Extra, tuple[str, ...]] = {
    "server": ("kubernetes", "nats", "pulumi"),
    "embedded": ("gpu_platform.devcluster", "kubernetes", "pulumi_kubernetes"),
}
"""Modules that an installation with the extra has."""

ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def require_extra(extra: Extra) -> None:
    """Raises SentenceError if the extra is not installed."""
    if any(find_spec(name) is None for name in MARKS[extra]):
        raise SentenceError(f"this command needs the extra {extra}: pip install 'gpu-platform[{extra}]'")


def add_commands(app: typer.Typer, name: str, extra: Extra) -> None:
    """Adds the module `gpu_platform.cli.<name>`; without its extra, a command that asks for it."""
    if all(find_spec(each) for each in MARKS[extra]):
        module: Any = import_module(f"gpu_platform.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
        return

    def refuse() -> None:
        require_extra(extra)

    app.command(name, help=f"Needs the extra {extra}, which is not installed.", context_settings=ANYTHING)(refuse)
