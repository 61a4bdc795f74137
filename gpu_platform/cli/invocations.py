"""`gpu-platform invoke`, `invocations` and `dead-letters`: calls of functions, and those that came to nothing."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gpu_platform.cli.connection import connect
from gpu_platform.cli.options import AsJson, Name, Url, said
from gpu_platform.cli.output import (
    build_age,
    build_details,
    build_state,
    build_why,
    coloured,
    coloured_word,
    now,
    parse_instant,
    plain,
    print_beside,
    print_json,
    print_line,
    print_remark,
    print_rows,
    print_table,
)
from gpu_platform.cli.request_files import new_invocation_id, parse_json, replayable
from gpu_platform.cli.views import InvocationView
from gpu_platform.cli.wait import Deadline
from gpu_platform.domain.json_text import Json

app = typer.Typer(help="Calls of your functions.", no_args_is_help=True)
dead_letters = typer.Typer(help="Calls that no worker could answer.", no_args_is_help=True)
ANSWERED = "succeeded"
OPEN = ("queued", "running")

# Seconds: on the way there and back, beyond what the platform waits.
MARGIN = 20.0

DEFAULT_WAIT = 30
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
    request = said(
        serverlessRequestID=name,
        invocationID=chosen_id,
        mode="async" if is_async else "sync",
        payload=read_payload(payload),
        headers=dict(_parse_header(text) for text in header) if header else None,
        timeoutSeconds=timeout,
    )
    deadline = Deadline(timeout or DEFAULT_WAIT)
    with connect(url) as client, replayable(chosen_id, "--id"):
        call = client.invoke(request, silence_seconds=(timeout or DEFAULT_WAIT) + MARGIN).view
    if as_json:
        print_json(call)
    elif call["state"] in OPEN:
        print_line(f"{call['invocationID']} is ", coloured_word(call["state"]))
        if not is_async:
            for remark in build_remarks(call, deadline.elapsed_seconds()):
                print_remark(remark)
    else:
        _print_answer(call)
        if trace:
            print_beside(build_timeline(call))
    if call["state"] not in (ANSWERED, *(OPEN if is_async else ())):
        raise typer.Exit(1)


def build_remarks(call: InvocationView, waited_seconds: float) -> tuple[str, ...]:
    """What is known of a call that was waited for and is not over, and what becomes of it. Its times are the platform's
    own, of which only the difference is used: the clocks of two machines differ."""
    function = (f"its function is {_describe_function(call)}",) if call.get("functionState") else ()
    ends_at = call.get("expiresAt")
    if ends_at is None:
        end = "it goes on"
    elif waited_seconds >= (life := _seconds_between(call["acceptedAt"], ends_at)):
        end = f"its deadline of {life:g} s is over: unless an answer came in time, it ends as expired"
    else:
        end = f"it goes on, until {ends_at} at the latest"
    return *function, f"{end}; `gpu-platform invocations get {call['invocationID']}` shows its state"


def _describe_function(call: InvocationView) -> str:
    """`words: Failed (WorkerFailed: …)`; the name alone where the API does not say how the function is."""
    name, state = call["serverlessRequestID"], call.get("functionState")
    return f"{name}: {build_state(state['phase'], build_why(state))}" if state else name


def _seconds_between(begin: str, end: str) -> float:
    return (parse_instant(end) - parse_instant(begin)).total_seconds()


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
        calls = client.list_invocations(function, state, limit)
    _print_calls(calls, "there are no such calls; `gpu-platform invoke` makes one", as_json=as_json)


@app.command()
def get(invocation_id: Id, as_json: AsJson = False, url: Url = None) -> None:
    """Show a call, with its answer."""
    with connect(url) as client:
        call = client.get_invocation(invocation_id)
    if as_json:
        print_json(call)
    else:
        _print_call(call)


@app.command()
def cancel(invocation_id: Id, as_json: AsJson = False, url: Url = None) -> None:
    """Ask for the end of a call. One that waits is never run."""
    with connect(url) as client:
        call = client.cancel_invocation(invocation_id)
    if as_json:
        print_json(call)
    elif call["state"] in OPEN:
        print_line(f"{invocation_id} runs, and is asked to end")
    else:
        print_line(f"{invocation_id} is ", coloured_word(call["state"]))


@app.command()
def delete(invocation_id: Id, as_json: AsJson = False, url: Url = None) -> None:
    """Delete an invocation that is over, with its payload and result."""
    with connect(url) as client:
        call = client.delete_invocation(invocation_id)
    if as_json:
        print_json(call)
    else:
        print_line(f"{invocation_id} is deleted")


@app.command()
def retry(invocation_id: Id, as_json: AsJson = False, url: Url = None) -> None:
    """Make the same call once more, under a new id."""
    with connect(url) as client:
        call = client.retry_invocation(invocation_id).view
    if as_json:
        print_json(call)
    else:
        print_line(f"{invocation_id} is tried again as {call['invocationID']}: ", coloured_word(call["state"]))


@app.command()
def watch(function: OfFunction = None, as_json: AsJson = False, url: Url = None) -> None:
    """Print a line whenever a call changes. Ctrl-C ends it."""
    with connect(url) as client:
        for event in client.watch_invocations(function):
            if as_json:
                raw = {"event": event.event, "id": event.id, "data": event.data}
                print_json(raw, indent=None)
            elif isinstance(event.data, dict) and "invocationID" in event.data:
                time = now().astimezone().strftime("%H:%M:%S")
                call = event.data
                print_line(
                    f"{time}  {call['serverlessRequestID']}  {call['invocationID']}  ", coloured_word(call["state"])
                )


@dead_letters.command("list")
def list_dead_letters(function: OfFunction = None, as_json: AsJson = False, url: Url = None) -> None:
    """List the dead letters."""
    with connect(url) as client:
        calls = client.list_dead_letters(function)
    _print_calls(calls, "there are no dead letters", as_json=as_json)


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
        answer = client.redrive(said(function=function, ids=ids))
    if as_json:
        print_json(answer)
    else:
        _print_redriven(answer)


def _print_redriven(answer: Json) -> None:
    """The new ids, a line each; what else there is to say stands beside them."""
    for new_id in answer["ids"]:
        print_line(new_id)
    print_remark(f"dead letters tried again: {answer['redriven']}" + (", under these ids" if answer["ids"] else ""))
    if known := answer["known"]:
        print_remark(f"tried again before: {known}")
    if skipped := answer["skipped"]:
        print_remark(f"skipped, because their function or payload is gone: {skipped}")
    if answer["more"]:
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
    result = call.get("result")
    if call["state"] != ANSWERED:
        print_remark(f"{call['invocationID']} {call['state']}: {_why_of(call) or 'it does not say why'}")
    if result is not None and result.get("body") is not None:
        print_json(result["body"])


def _why_of(call: InvocationView) -> str | None:
    result = call.get("result")
    return call.get("reason") or (result.get("error") if result else None)


def _print_calls(calls: list[InvocationView], empty: str, *, as_json: bool) -> None:
    if as_json:
        print_json(calls)
        return
    print_rows(
        ("ID", "FUNCTION", "STATE", "ATTEMPTS", "WORKER", "AGE", "REASON"),
        (
            (
                call["invocationID"],
                call["serverlessRequestID"],
                call["state"],
                call["attempts"],
                call.get("worker"),
                build_age(call["acceptedAt"], now()),
                _why_of(call),
            )
            for call in calls
        ),
        empty=empty,
    )


def _print_call(call: InvocationView) -> None:
    result = call.get("result")
    fields = {
        "id": call["invocationID"],
        "function": _describe_function(call),
        "state": coloured(call["state"]),
        "why": call.get("reason"),
        "attempts": call["attempts"],
        "worker": call.get("worker"),
        "accepted": call["acceptedAt"],
        "started": call.get("startedAt"),
        "expires": call.get("expiresAt") if call["state"] in OPEN else None,
        "finished": call.get("finishedAt"),
        "retry of": call.get("retryOf"),
        "status": result["statusCode"] if result else None,
        "error": result.get("error") if result else None,
        "answer": plain(result["body"]) if result and result.get("body") is not None else None,
    }
    print_table(build_details(fields))
    if call.get("coldStart"):
        print_line()
        print_table(build_timeline(call))


@dataclass(frozen=True)
class Moment:
    name: str
    seconds: float
    """Since the call was accepted."""


def list_moments(call: InvocationView) -> tuple[Moment, ...]:
    """Those that are known, in their order. What was before the call, another call had asked for."""
    start = call.get("coldStart")
    texts = {
        "accepted": call["acceptedAt"],
        "queued": call.get("queuedAt"),
        "woken": start.get("wokenAt") if start else None,
        "stock claimed": start.get("claimedAt") if start else None,
        "worker started": start["startedAt"] if start else None,
        "worker ready": start["readyAt"] if start else None,
        "begun": call.get("startedAt"),
        "answered": call.get("finishedAt"),
    }
    accepted_at = parse_instant(call["acceptedAt"])
    moments = [
        Moment(name, (parse_instant(text) - accepted_at).total_seconds()) for name, text in texts.items() if text
    ]
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
