"""`gpu-platform invoke`, `invocations` and `dead-letters`: calls of functions, and those that came to nothing."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gpu_platform.api_models.invocations import InvocationView, Redriven, new_invocation_id
from gpu_platform.cli.options import AsJson, Name, Url
from gpu_platform.cli.output import (
    build_age,
    build_details,
    coloured,
    describe_instant,
    now,
    plain,
    print_answer,
    print_beside,
    print_event,
    print_json,
    print_line,
    print_remark,
    print_table,
)
from gpu_platform.cli.request_files import parse_json, replayable
from gpu_platform.cli.resources import Columns, connect, print_list
from gpu_platform.client import ServerEvent
from gpu_platform.client.calls import drop_none
from gpu_platform.client.resources import SYNC_SECONDS
from gpu_platform.client.wait import Deadline, describe_state

app = typer.Typer(help="Calls of your functions.", no_args_is_help=True)
dead_letters = typer.Typer(help="Calls that no worker could answer.", no_args_is_help=True)
ANSWERED = "succeeded"
OPEN = ("queued", "running")

COLUMNS: Columns[InvocationView] = {
    "ID": lambda call: call.invocation_id,
    "FUNCTION": lambda call: call.serverless_request_id,
    "STATE": lambda call: call.state,
    "ATTEMPTS": lambda call: call.attempts,
    "WORKER": lambda call: call.worker,
    "AGE": lambda call: build_age(call.accepted_at, now()),
    "REASON": lambda call: _why_of(call),
}

Id = Annotated[str, typer.Argument(metavar="ID", help="The call's id.")]
OfFunction = Annotated[str | None, typer.Option("--function", help="Only calls of this function.")]

WIDTH = 32
"""Columns of the picture: the whole call."""


def invoke(
    name: Name,
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="JSON, @FILE, or - for stdin; by default null.")
    ] = None,
    is_async: Annotated[bool, typer.Option("--async", help="Do not wait for the answer.")] = False,
    timeout: Annotated[
        int | None, typer.Option(min=1, help="Deadline of the call in seconds; so long is waited, too.")
    ] = None,
    invocation_id: Annotated[
        str | None,
        typer.Option(
            "--id", help="Names the call, so that repeating it does not run it twice. By default a random one."
        ),
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE; repeat it.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show which step took how long.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Call a function and print its answer. Exits with 1 when the call did not succeed."""
    chosen_id = new_invocation_id() if invocation_id is None else invocation_id
    request = drop_none(
        serverlessRequestID=name,
        invocationID=chosen_id,
        mode="async" if is_async else "sync",
        payload=read_payload(payload),
        headers=dict(_parse_header(text) for text in header) if header else None,
        timeoutSeconds=timeout,
    )
    wait_seconds = timeout or SYNC_SECONDS
    deadline = Deadline(wait_seconds)
    with connect(url) as client, replayable(chosen_id, "--id"):
        answer = client.invocations.invoke(request, wait_seconds=wait_seconds)
    call = answer.value
    if as_json:
        print_json(answer.document)
    elif call.state in OPEN:
        print_line(f"{call.invocation_id} is ", coloured(call.state))
        if not is_async:
            for remark in build_remarks(call, deadline.elapsed_seconds()):
                print_remark(remark)
    else:
        _print_answer(call)
        if trace:
            print_beside(build_timeline(call))
    if call.state not in (ANSWERED, *(OPEN if is_async else ())):
        raise typer.Exit(1)


def build_remarks(call: InvocationView, waited_seconds: float) -> tuple[str, ...]:
    """What is known of a call that was waited for and is not over, and what becomes of it. Its times are the platform's
    own, of which only the difference is used: the clocks of two machines differ."""
    function = (f"its function is {_describe_function(call)}",) if call.function_state else ()
    life = (call.expires_at - call.accepted_at).total_seconds()
    if waited_seconds >= life:
        end = f"its deadline of {life:g} s is over: unless an answer came in time, it ends as expired"
    else:
        end = f"it goes on, until {describe_instant(call.expires_at)} at the latest"
    return *function, f"{end}; `gpu-platform invocations get {call.invocation_id}` shows its state"


def _describe_function(call: InvocationView) -> str:
    """`words: Failed (WorkerFailed: …)`; the name alone where the API does not say how the function is."""
    name, state = call.serverless_request_id, call.function_state
    return f"{name}: {describe_state(state)}" if state else name


@app.command("list")
def list_invocations(
    function: OfFunction = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state, such as running.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List calls, the one that changed longest ago first."""
    with connect(url) as client:
        answer = client.invocations.list(function, state, limit)
    print_list(answer, COLUMNS, empty="there are no such calls; `gpu-platform invoke` makes one", as_json=as_json)


@app.command()
def get(invocation_id: Id, as_json: AsJson = False, url: Url = None) -> None:
    """Show a call, with its answer."""
    with connect(url) as client:
        answer = client.invocations.get(invocation_id)
    print_answer(answer, _print_call, as_json=as_json)


@app.command()
def cancel(invocation_id: Id, as_json: AsJson = False, url: Url = None) -> None:
    """Ask for the end of a call. One that waits is never run."""
    with connect(url) as client:
        answer = client.invocations.cancel(invocation_id)

    def show(call: InvocationView) -> None:
        if call.state in OPEN:
            print_line(f"{invocation_id} runs, and is asked to end")
        else:
            print_line(f"{invocation_id} is ", coloured(call.state))

    print_answer(answer, show, as_json=as_json)


@app.command()
def delete(invocation_id: Id, as_json: AsJson = False, url: Url = None) -> None:
    """Delete an invocation that is over, with its payload and result."""
    with connect(url) as client:
        answer = client.invocations.delete(invocation_id)
    print_answer(answer, lambda _: print_line(f"{invocation_id} is deleted"), as_json=as_json)


@app.command()
def retry(invocation_id: Id, as_json: AsJson = False, url: Url = None) -> None:
    """Make the same call once more, under a new id."""
    with connect(url) as client:
        answer = client.invocations.retry(invocation_id)

    def show(call: InvocationView) -> None:
        print_line(f"{invocation_id} is tried again as {call.invocation_id}: ", coloured(call.state))

    print_answer(answer, show, as_json=as_json)


@app.command()
def watch(function: OfFunction = None, as_json: AsJson = False, url: Url = None) -> None:
    """Print a line whenever a call changes. Ctrl-C ends it."""
    with connect(url) as client:
        for event in client.invocations.watch(function):
            print_event(event, _print_change, as_json=as_json)


def _print_change(time: str, event: ServerEvent[InvocationView]) -> None:
    if isinstance(event.data, dict) and "invocationID" in event.data and (call := event.object):
        print_line(f"{time}  {call.serverless_request_id}  {call.invocation_id}  ", coloured(call.state))


@dead_letters.command("list")
def list_dead_letters(function: OfFunction = None, as_json: AsJson = False, url: Url = None) -> None:
    """List the dead letters."""
    with connect(url) as client:
        answer = client.dead_letters.list(function)
    print_list(answer, COLUMNS, empty="there are no dead letters", as_json=as_json)


@dead_letters.command()
def redrive(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Only these.")] = None,
    function: OfFunction = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Try dead letters again, each under a new id. Twice asked is once tried."""
    if not ids and not function:
        raise typer.BadParameter("say which: ids, or --function")
    with connect(url) as client:
        answer = client.dead_letters.redrive(drop_none(function=function, ids=ids))
    print_answer(answer, _print_redriven, as_json=as_json)


def _print_redriven(result: Redriven) -> None:
    """The new ids, a line each; what else there is to say stands beside them."""
    for new_id in result.ids:
        print_line(new_id)
    print_remark(f"dead letters tried again: {result.redriven}" + (", under these ids" if result.ids else ""))
    if result.known:
        print_remark(f"tried again before: {result.known}")
    if result.skipped:
        print_remark(f"skipped, because their function or payload is gone: {result.skipped}")
    if result.more:
        print_remark("there may be more; the same command tries them")


def read_payload(text: str | None) -> Any:
    """JSON as it was said, of a file, or of what is piped in."""
    if text is None:
        return None
    try:
        # JSON is UTF-8, whatever the locale says.
        if text == "-":
            text = sys.stdin.buffer.read().decode()
        elif text.startswith("@"):
            text = Path(text[1:]).read_bytes().decode()
        return parse_json(text)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {text}: {error.strerror}", param_hint="PAYLOAD") from None
    except ValueError as error:
        raise typer.BadParameter(f"is not JSON: {error}", param_hint="PAYLOAD") from None


def _parse_header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} should look like NAME=VALUE", param_hint="--header")
    return name, value


def _print_answer(call: InvocationView) -> None:
    """The body on stdout, and what else is to be said beside it."""
    if call.state != ANSWERED:
        print_remark(f"{call.invocation_id} {call.state}: {_why_of(call) or 'it does not say why'}")
    if call.result and call.result.body is not None:
        print_json(call.result.body)


def _why_of(call: InvocationView) -> str | None:
    return call.reason or (call.result.error if call.result else None)


def _print_call(call: InvocationView) -> None:
    result = call.result
    fields = {
        "id": call.invocation_id,
        "function": _describe_function(call),
        "state": coloured(call.state),
        "why": call.reason,
        "attempts": call.attempts,
        "worker": call.worker,
        "accepted": call.accepted_at,
        "started": call.started_at,
        "expires": call.expires_at if call.state in OPEN else None,
        "finished": call.finished_at,
        "retry of": call.retry_of,
        "status": result.status_code if result else None,
        "error": result.error if result else None,
        "answer": plain(result.body) if result and result.body is not None else None,
    }
    print_table(build_details(fields))
    if call.cold_start:
        print_line()
        print_table(build_timeline(call))


@dataclass(frozen=True)
class Moment:
    name: str
    seconds: float
    """Since the call was accepted."""


def list_moments(call: InvocationView) -> tuple[Moment, ...]:
    """Those that are known, in their order. What was before the call, another call had asked for."""
    start = call.cold_start
    times = {
        "accepted": call.accepted_at,
        "queued": call.queued_at,
        "woken": start.woken_at if start else None,
        "stock claimed": start.claimed_at if start else None,
        "worker started": start.started_at if start else None,
        "worker ready": start.ready_at if start else None,
        "begun": call.started_at,
        "answered": call.finished_at,
    }
    moments = [Moment(name, (time - call.accepted_at).total_seconds()) for name, time in times.items() if time]
    return tuple(sorted((moment for moment in moments if moment.seconds >= 0), key=lambda moment: moment.seconds))


def build_timeline(call: InvocationView) -> Table:
    """A line per moment, with a bar for the way to it from the one before."""
    moments = list_moments(call)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, style="cyan")
    for moment, bar in zip(moments, build_bars([moment.seconds for moment in moments]), strict=True):
        table.add_row(moment.name, f"{moment.seconds * 1_000:,.0f} ms", bar)
    return table


def build_bars(ends: Sequence[float]) -> list[str]:
    """One from each end to the next, on one scale; a step that took time at all is seen."""
    whole = max(ends, default=0.0) or 1.0
    bars, before = [], 0.0
    for end in ends:
        begin = min(int(before / whole * WIDTH), WIDTH - 1)
        length = max(1, round((end - before) / whole * WIDTH)) if end > before else 0
        bars.append(" " * begin + "━" * min(length, WIDTH - begin))
        before = end
    return bars
