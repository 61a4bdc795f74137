"""`gpu-platform functions`: a tenant's functions, which answer calls."""

from typing import Annotated

import typer

from gpu_platform.cli import unit_options
from gpu_platform.cli.connection import connect
from gpu_platform.cli.options import (
    DEFAULT_TIMEOUT,
    AsJson,
    Follow,
    Name,
    OperationId,
    SpecOrFile,
    Tail,
    Timeout,
    Timestamps,
    Url,
    Wait,
    build_log_params,
    said,
)
from gpu_platform.cli.output import (
    build_age,
    build_details,
    build_template_fields,
    build_why,
    coloured,
    now,
    print_json,
    print_line,
    print_logs,
    print_replay,
    print_rows,
    print_table,
)
from gpu_platform.cli.request_files import (
    FUNCTION,
    File,
    Update,
    build_create,
    choose_operation_id,
    read_file,
    replayable,
    require_said,
)
from gpu_platform.cli.stacks import print_stack
from gpu_platform.cli.unit_options import UnitOptions
from gpu_platform.cli.views import FunctionView
from gpu_platform.cli.wait import Deadline, finish_ready, print_ready
from gpu_platform.domain.json_text import Json

app = typer.Typer(help="Your functions: code that answers calls.", no_args_is_help=True)

Image = Annotated[str | None, typer.Option("--image", help="The image that a worker runs.")]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Calls that one worker runs at once.")]
MinWorkers = Annotated[int | None, typer.Option("--min-workers", min=0, help="Workers that are always there.")]
MaxWorkers = Annotated[int | None, typer.Option("--max-workers", min=1, help="Workers at most.")]
IdleTimeout = Annotated[
    int | None, typer.Option("--idle-timeout", min=1, help="Seconds that a worker may have nothing to do.")
]
CallTimeout = Annotated[int | None, typer.Option("--call-timeout", min=1, help="Deadline of a call, in seconds.")]
MaxAttempts = Annotated[int | None, typer.Option("--max-attempts", min=1, help="Tries of a call whose worker dies.")]
QueueLimit = Annotated[int | None, typer.Option("--queue-limit", min=1, help="Calls that may wait or run.")]


@app.command("list")
def list_functions(as_json: AsJson = False, url: Url = None) -> None:
    """List the functions."""
    with connect(url) as client:
        functions = client.list_functions()
    if as_json:
        print_json(functions)
        return
    print_rows(
        ("NAME", "SPEC", "WORKERS", "READY", "PHASE", "AGE", "REASON"),
        (
            (
                function["name"],
                function["specName"],
                function["workers"],
                function["readyWorkers"],
                function["phase"],
                build_age(function["createdAt"], now()),
                None if function["phase"] == "Ready" else build_why(function),
            )
            for function in functions
        ),
        empty="there are no functions; `gpu-platform functions create` makes one",
    )


@app.command()
def get(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show a function."""
    with connect(url) as client:
        function = client.get_function(name).view
    if as_json:
        print_json(function)
    else:
        _print_function(function)


@app.command()
def create(
    name: Name,
    spec: SpecOrFile = None,
    image: Image = None,
    command: unit_options.Command = None,
    arg: unit_options.Arg = None,
    env: unit_options.Env = None,
    concurrency: Concurrency = None,
    min_workers: MinWorkers = None,
    max_workers: MaxWorkers = None,
    idle_timeout: IdleTimeout = None,
    call_timeout: CallTimeout = None,
    max_attempts: MaxAttempts = None,
    queue_limit: QueueLimit = None,
    file: File = None,
    operation_id: OperationId = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create a function. With --wait, until its workers are ready."""
    content = read_file(file)
    operation = choose_operation_id(operation_id, content)
    options = {
        **said(specName=spec),
        **UnitOptions(image, command, arg, env).build_request(),
        **_limits(concurrency, min_workers, max_workers, idle_timeout, call_timeout, max_attempts, queue_limit),
    }
    request = build_create(content, options, name, operation)
    require_said(request, {"specName": "--spec", "image": "--image"})
    with connect(url) as client:
        deadline = Deadline(timeout)
        with replayable(operation):
            accepted = client.create_function(request)
        print_replay(accepted, name, as_json=as_json)
        finish_ready("functions", accepted.view, client.find_function, deadline if wait else None, as_json=as_json)


@app.command()
def update(
    name: Name,
    image: Image = None,
    command: unit_options.Command = None,
    arg: unit_options.Arg = None,
    env: unit_options.Env = None,
    concurrency: Concurrency = None,
    min_workers: MinWorkers = None,
    max_workers: MaxWorkers = None,
    idle_timeout: IdleTimeout = None,
    call_timeout: CallTimeout = None,
    max_attempts: MaxAttempts = None,
    queue_limit: QueueLimit = None,
    file: File = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Change a function. A list replaces the old one; what is not named stays."""
    options = {
        **UnitOptions(image, command, arg, env).build_request(),
        **_limits(concurrency, min_workers, max_workers, idle_timeout, call_timeout, max_attempts, queue_limit),
    }
    change = Update(FUNCTION, name, read_file(file), options)
    with connect(url) as client:
        current = client.get_function(name)
        function = client.update_function(name, change.build_request(current.view), current.etag)
    print_ready(function, None, as_json=as_json)


@app.command()
def delete(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Delete a function with its workers. Calls that wait for it are cancelled."""
    with connect(url) as client:
        client.delete_function(name)
    if not as_json:
        print_line(f"{name} is being deleted")


@app.command()
def health(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show whether a function answers, and how many calls wait."""
    with connect(url) as client:
        seen = client.get_function_health(name)
    if as_json:
        print_json(seen)
        return
    fields = {
        "state": coloured(seen["state"]),
        "why": build_why(seen),
        "workers": f"{seen['readyWorkers']} of {seen['workers']} ready",
        "waiting": seen.get("waiting"),
        "running": seen.get("running"),
    }
    print_table(build_details(fields))


@app.command()
def logs(
    name: Name,
    worker: Annotated[str | None, typer.Option(help="Only of this worker, without its name before each line.")] = None,
    follow: Follow = False,
    tail: Tail = None,
    timestamps: Timestamps = False,
    url: Url = None,
) -> None:
    """Show the last lines that a function's workers wrote, also of workers that are gone."""
    params = build_log_params(follow=follow, tail=tail, previous=False, timestamps=timestamps)
    with connect(url) as client:
        print_logs(client.read_function_logs(name, params | said(worker=worker)))


@app.command()
def stack(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show what Pulumi has recorded of a function."""
    with connect(url) as client:
        print_stack(client.get_function_stack(name), as_json=as_json)


@app.command()
def purge(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Cancel all calls that wait for a function. Those that run go on."""
    with connect(url) as client:
        cancelled = client.purge_function(name)
    if as_json:
        print_json({"cancelled": cancelled})
    else:
        print_line(f"{cancelled} waiting calls of {name} are cancelled")


def _limits(
    concurrency: int | None,
    min_workers: int | None,
    max_workers: int | None,
    idle_timeout: int | None,
    call_timeout: int | None,
    max_attempts: int | None,
    queue_limit: int | None,
) -> Json:
    """Those that were said."""
    return said(
        concurrency=concurrency,
        minWorkers=min_workers,
        maxWorkers=max_workers,
        idleTimeoutSeconds=idle_timeout,
        timeoutSeconds=call_timeout,
        maxAttempts=max_attempts,
        queueLimit=queue_limit,
    )


def _print_function(function: FunctionView) -> None:
    template = function.get("template") or {}
    fields = {
        "name": function["name"],
        "namespace": function["namespace"],
        "phase": coloured(function["phase"]),
        "why": build_why(function),
        "spec": function["specName"],
        "image": function["image"],
        **build_template_fields(template),
        "concurrency": function["concurrency"],
        "workers": f"{function['readyWorkers']} of {function['workers']} ready, "
        f"{function['minWorkers']} to {function['maxWorkers']} wanted",
        "idle after": f"{function['idleTimeoutSeconds']} s",
        "deadline": f"{function['timeoutSeconds']} s" if function.get("timeoutSeconds") else None,
        "attempts": function["maxAttempts"],
        "queue limit": function["queueLimit"],
        "stack": function.get("stack"),
        "age": build_age(function["createdAt"], now()),
    }
    print_table(build_details(fields))
