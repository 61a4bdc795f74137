"""`gpu-platform functions`: a tenant's functions, which answer calls."""

from dataclasses import dataclass
from typing import Annotated

import typer

from gpu_platform.api_models.functions import FunctionHealth, FunctionView
from gpu_platform.cli.options import (
    AsJson,
    Follow,
    Name,
    OperationId,
    SpecOrFile,
    Tail,
    Timestamps,
    Url,
    with_options,
)
from gpu_platform.cli.output import (
    build_age,
    build_template_fields,
    coloured,
    now,
    print_answer,
    print_line,
    print_logs,
    print_replay,
)
from gpu_platform.cli.request_files import FUNCTION, File, Update, build_create, read_file, replayable
from gpu_platform.cli.resources import Columns, add_delete, add_show, add_stack, connect, print_list
from gpu_platform.cli.unit_options import ContainerOptions
from gpu_platform.cli.wait import WaitOptions, finish_ready
from gpu_platform.client.calls import drop_none
from gpu_platform.client.wait import describe_reason, describe_state
from gpu_platform.domain.json_text import Json

app = typer.Typer(help="Your functions: code that answers calls.", no_args_is_help=True)

COLUMNS: Columns[FunctionView] = {
    "NAME": lambda function: function.name,
    "SPEC": lambda function: function.spec_name,
    "WORKERS": lambda function: function.workers,
    "READY": lambda function: function.ready_workers,
    "PHASE": lambda function: function.phase,
    "AGE": lambda function: build_age(function.created_at, now()),
    "REASON": lambda function: None if function.phase == "Ready" else describe_reason(function),
}

Image = Annotated[str | None, typer.Option("--image", help="The image that a worker runs.")]


@dataclass(frozen=True)
class WorkerOptions(ContainerOptions):
    """The options of a function's workers and invocations. None: not given."""

    concurrency: Annotated[int | None, typer.Option(min=1, help="Calls that one worker runs at once.")] = None
    min_workers: Annotated[int | None, typer.Option(min=0, help="Workers that are always there.")] = None
    max_workers: Annotated[int | None, typer.Option(min=1, help="Workers at most.")] = None
    idle_timeout: Annotated[int | None, typer.Option(min=1, help="Seconds that a worker may have nothing to do.")] = (
        None
    )
    call_timeout: Annotated[int | None, typer.Option(min=1, help="Deadline of a call, in seconds.")] = None
    max_attempts: Annotated[int | None, typer.Option(min=1, help="Tries of a call whose worker dies.")] = None
    queue_limit: Annotated[int | None, typer.Option(min=1, help="Calls that may wait or run.")] = None

    def build_request(self) -> Json:
        """The fields of a request whose options are given."""
        return drop_none(
            template=self.build_template() or None,
            concurrency=self.concurrency,
            minWorkers=self.min_workers,
            maxWorkers=self.max_workers,
            idleTimeoutSeconds=self.idle_timeout,
            timeoutSeconds=self.call_timeout,
            maxAttempts=self.max_attempts,
            queueLimit=self.queue_limit,
        )


@app.command("list")
def list_functions(as_json: AsJson = False, url: Url = None) -> None:
    """List the functions."""
    with connect(url) as client:
        answer = client.functions.list()
    empty = "there are no functions; `gpu-platform functions create` makes one"
    print_list(answer, COLUMNS, empty=empty, as_json=as_json)


def _build_fields(function: FunctionView) -> dict[str, object]:
    return {
        "name": function.name,
        "namespace": function.namespace,
        "phase": coloured(function.phase),
        "why": describe_reason(function),
        "spec": function.spec_name,
        "image": function.image,
        **build_template_fields(function.template),
        "concurrency": function.concurrency,
        "workers": f"{function.ready_workers} of {function.workers} ready, "
        f"{function.min_workers} to {function.max_workers} wanted",
        "idle after": f"{function.idle_timeout_seconds} s",
        "deadline": f"{function.timeout_seconds} s" if function.timeout_seconds else None,
        "attempts": function.max_attempts,
        "queue limit": function.queue_limit,
        "stack": function.stack,
        "age": build_age(function.created_at, now()),
    }


def _build_health_fields(seen: FunctionHealth) -> dict[str, object]:
    return {
        "state": coloured(seen.state),
        "why": describe_reason(seen),
        "workers": f"{seen.ready_workers} of {seen.workers} ready",
        "waiting": seen.waiting,
        "running": seen.running,
    }


add_show(app, "get", "Show a function.", lambda client: client.functions.get, _build_fields)


@app.command()
@with_options
def create(
    name: Name,
    spec: SpecOrFile = None,
    image: Image = None,
    worker: WorkerOptions = WorkerOptions(),  # noqa: B008 - a value
    file: File = None,
    operation_id: OperationId = None,
    waiting: WaitOptions = WaitOptions(),  # noqa: B008 - a value
) -> None:
    """Create a function. With --wait, until its workers are ready."""
    options = {**drop_none(specName=spec, image=image or None), **worker.build_request()}
    request = build_create(file, options, name, operation_id, {"specName": "--spec", "image": "--image"})
    with waiting.connect() as session:
        functions = session.client.functions
        with replayable(request["operationID"]):
            answer = functions.create(request)
        print_replay(answer, name, as_json=session.as_json)
        finish_ready(session, functions, "functions", answer)


@app.command()
@with_options
def update(
    name: Name,
    image: Image = None,
    worker: WorkerOptions = WorkerOptions(),  # noqa: B008 - a value
    file: File = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Change a function. A list replaces the old one; what is not named stays."""
    options = {**drop_none(image=image or None), **worker.build_request()}
    change = Update(FUNCTION, name, read_file(file), options)
    with connect(url) as client:
        current = client.functions.get(name)
        answer = client.functions.update(name, change.build_request(current.document), etag=current.etag)
    print_answer(answer, lambda function: print_line(f"{name}: {describe_state(function)}"), as_json=as_json)


add_delete(
    app,
    "Delete a function with its workers. Calls that wait for it are cancelled.",
    lambda client: client.functions.delete,
)
add_show(
    app,
    "health",
    "Show whether a function answers, and how many calls wait.",
    lambda client: client.functions.health,
    _build_health_fields,
)


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
    with connect(url) as client:
        print_logs(client.functions.logs(name, follow=follow, tail=tail, timestamps=timestamps, worker=worker))


add_stack(app, "Show what Pulumi has recorded of a function.", lambda client: client.functions.stack)


@app.command()
def purge(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Cancel all calls that wait for a function. Those that run go on."""
    with connect(url) as client:
        answer = client.functions.purge(name)
    print_answer(
        answer, lambda purged: print_line(f"{purged.cancelled} waiting calls of {name} are cancelled"), as_json=as_json
    )
