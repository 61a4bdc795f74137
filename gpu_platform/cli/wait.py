"""`--wait`: shows the state of an object while the client waits for it, and what became of it. Used by every command
that changes something."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from gpu_platform.api_models.functions import FunctionView
from gpu_platform.api_models.storages import StorageView
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.output import (
    build_duration,
    coloured,
    print_error,
    print_json,
    print_line,
    print_remark,
)
from gpu_platform.cli.resources import connect
from gpu_platform.client import Answer, PlatformError, RawClient
from gpu_platform.client.calls import Operation
from gpu_platform.client.method import BlockingRaw
from gpu_platform.client.resources import Functions, Objects, Storages
from gpu_platform.client.wait import DEFAULT_TIMEOUT, Deadline, describe_state

T = TypeVar("T")
View = TypeVar("View", FunctionView, StorageView)

Wait = Annotated[bool, typer.Option("--wait", help="Stay until it is so; exit with 1 when it fails.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds that --wait waits at most.")]


@dataclass(frozen=True)
class Session:
    """One run of a command that changes something."""

    client: RawClient
    deadline: Deadline
    waits: bool
    """Whether it stays until the change is done."""

    as_json: bool


@dataclass(frozen=True)
class WaitOptions:
    """The options of a command that may wait for what it changed."""

    wait: Wait = False
    timeout: Timeout = DEFAULT_TIMEOUT
    as_json: AsJson = False
    url: Url = None

    @contextmanager
    def connect(self) -> Iterator[Session]:
        with connect(self.url) as client:
            yield Session(client, Deadline(self.timeout), self.wait, self.as_json)


def build_goes_on(group: str, name: str) -> str:
    """What becomes of an object that is no longer waited for. `group` are its commands."""
    noun = group.removesuffix("s")
    command = f"gpu-platform {group}"
    return f"the {noun} {name} lives on: `{command} get {name}` shows it, `{command} delete {name}` deletes it"


def wait_for(client: RawClient, wait: Operation[T], goes_on: str) -> Answer[T]:
    """What was last seen, once it is as wanted. `goes_on` is told after Ctrl-C: it ends the wait, and nothing else."""
    try:
        with _shown(wait.what) as show:
            return client.send(wait, show)
    except KeyboardInterrupt:
        print_remark(f"stopped waiting; {goes_on}")
        raise


@contextmanager
def _shown(what: str) -> Iterator[Callable[[str, float], None]]:
    """A line that moves where a person looks; elsewhere a line per change."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _build_plain(what, console)
        return
    with console.status(escape(what), spinner="line" if console.options.ascii_only else "dots") as status:

        def show(state: str, elapsed_seconds: float) -> None:
            line = Text(f"{what}: {state}  {build_duration(elapsed_seconds)}", no_wrap=True, overflow="ellipsis")
            status.update(line)

        yield show


def _build_plain(what: str, console: Console) -> Callable[[str, float], None]:
    said: list[str] = []

    def show(state: str, elapsed_seconds: float) -> None:
        if said[-1:] != [state]:
            said.append(state)
            console.print(Text(f"{what}: {state} after {build_duration(elapsed_seconds)}"), soft_wrap=True)

    return show


def finish_ready(
    session: Session, objects: Functions[BlockingRaw] | Storages[BlockingRaw], group: str, answer: Answer[View]
) -> None:
    """Waits, where that is wanted, and says how the object is. `group` are its commands."""
    if session.waits:
        name = answer.value.name
        wait = cast("Operation[View]", objects.wait.build(name, timeout=session.deadline))
        answer = wait_for(session.client, wait, build_goes_on(group, name))
    print_ready(session, answer)


def print_ready(session: Session, answer: Answer[FunctionView] | Answer[StorageView]) -> None:
    """Says how the object is. What was waited for is Ready."""
    if session.as_json:
        print_json(answer.document)
    elif session.waits:
        seconds = session.deadline.elapsed_seconds()
        print_line(f"{answer.value.name} is ", coloured("Ready"), f" after {seconds:.1f} s")
    else:
        print_line(f"{answer.value.name}: {describe_state(answer.value)}")


def delete_each(
    session: Session, objects: Objects[BlockingRaw, Any], group: str, names: list[str], delete: Callable[[str], object]
) -> None:
    """Deletes as many as it can; the command fails if one cannot be deleted."""
    leaving: list[str] = []
    for name in names:
        try:
            delete(name)
        except PlatformError as error:
            print_error(error)
        else:
            leaving.append(name)
            if not session.as_json:
                print_line(f"{name} is being deleted")
    if session.waits:
        for name in leaving:
            goes_on = f"the deletion of {name} goes on: `gpu-platform {group} get {name}` shows it"
            wait_for(session.client, objects.wait_deleted.build(name, timeout=session.deadline), goes_on)
            if not session.as_json:
                print_line(f"{name} is gone")
    if leaving != names:
        raise typer.Exit(1)
