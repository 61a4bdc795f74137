"""The end of a command: waits, where that is wanted, and says how the object is."""

from collections.abc import Callable
from typing import Any, TypeVar

import typer

from gpu_platform.cli.errors import PlatformError
from gpu_platform.cli.failures import print_error
from gpu_platform.cli.session import Accepted
from gpu_platform.cli.tables import build_why, coloured_word, print_json, print_line
from gpu_platform.cli.views import FunctionView, StorageView, UnitView
from gpu_platform.cli.wait import build_goes_on, build_state, judge_gone, judge_ready
from gpu_platform.cli.waiting import Deadline, wait_for

View = TypeVar("View", FunctionView, StorageView)
Deleted = TypeVar("Deleted", StorageView, UnitView)


def print_replay(accepted: Accepted[Any], name: str, *, as_json: bool) -> None:
    if not accepted.is_new and not as_json:
        print_line(f"{name} was accepted before, with the same operation")


def finish_ready(
    group: str, view: View, find: Callable[[str], View | None], deadline: Deadline | None, *, as_json: bool
) -> None:
    """Without a deadline, nothing is waited for. `group` are the object's commands."""
    name = view["name"]
    if deadline:
        goes_on = build_goes_on(group, name)
        view = wait_for(name, lambda: find(name), judge_ready, deadline, goal="Ready", goes_on=goes_on) or view
    print_ready(view, deadline, as_json=as_json)


def print_ready(view: FunctionView | StorageView, deadline: Deadline | None, *, as_json: bool) -> None:
    """With a deadline: it was waited for, and is Ready."""
    if as_json:
        print_json(view)
    elif deadline:
        print_line(f"{view['name']} is ", coloured_word("Ready"), f" after {deadline.elapsed_seconds():.1f} s")
    else:
        print_line(f"{view['name']}: {build_state(view['phase'], build_why(view))}")


def delete_each(
    group: str,
    names: list[str],
    delete: Callable[[str], None],
    find: Callable[[str], Deleted | None],
    deadline: Deadline | None,
    *,
    as_json: bool,
) -> None:
    """One that cannot be deleted does not keep the others; the command fails all the same."""
    leaving: list[str] = []
    for name in names:
        try:
            delete(name)
        except PlatformError as error:
            print_error(error)
        else:
            leaving.append(name)
            if not as_json:
                print_line(f"{name} is being deleted")
    if deadline:
        for name in leaving:
            _wait_gone(group, name, find, deadline)
            if not as_json:
                print_line(f"{name} is gone")
    if leaving != names:
        raise typer.Exit(1)


def _wait_gone(group: str, name: str, find: Callable[[str], Deleted | None], deadline: Deadline) -> None:
    goes_on = f"the deletion of {name} goes on: `gpu-platform {group} get {name}` shows it"
    wait_for(name, lambda: find(name), judge_gone, deadline, goal="gone", goes_on=goes_on, absence_is_news=False)
