"""`gpu-platform units`: a tenant's units."""

from collections.abc import Callable
from typing import Annotated

import typer

from gpu_platform.api_models.stacks import PreviewView
from gpu_platform.api_models.units import AddressView, GpuView, UnitMetricsView, UnitView
from gpu_platform.cli.options import (
    AsJson,
    Follow,
    Name,
    Names,
    OnlyPhase,
    OnlySpec,
    OperationId,
    Previous,
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
    plain,
    print_answer,
    print_event,
    print_json,
    print_line,
    print_logs,
    print_remark,
    print_replay,
    print_rows,
)
from gpu_platform.cli.request_files import UNIT, File, Update, build_create, read_file, replayable
from gpu_platform.cli.resources import Columns, add_events, add_show, add_stack, connect, print_list
from gpu_platform.cli.unit_options import NewUnitOptions, SshOptions, UnitOptions
from gpu_platform.cli.wait import Session, Timeout, Wait, WaitOptions, build_goes_on, delete_each, wait_for
from gpu_platform.client import Answer, PlatformError, RawClient, ServerEvent
from gpu_platform.client.calls import drop_none
from gpu_platform.client.wait import DEFAULT_TIMEOUT, Deadline, describe_reason, describe_state
from gpu_platform.domain.json_text import Json

app = typer.Typer(help="Your units: running images with GPUs.", no_args_is_help=True)

COLUMNS: Columns[UnitView] = {
    "NAME": lambda unit: unit.name,
    "SPEC": lambda unit: unit.spec_name,
    "PHASE": lambda unit: unit.phase,
    "NODE": lambda unit: unit.node_name,
    "AGE": lambda unit: build_age(unit.created_at, now()),
    "DETAIL": lambda unit: unit.access_url if unit.phase == "Ready" else describe_reason(unit),
}

GPU_COLUMNS: Columns[GpuView] = {
    "GPU": lambda device: "/".join(filter(None, (device.gpu, device.partition))),
    "PRODUCT": lambda device: device.product,
    "NODE": lambda device: device.node,
    "BUSY": lambda device: _amount(device.utilization_percent, "%"),
    "MEMORY USED": lambda device: _amount(device.memory_used_mib, " MiB"),
    "MEMORY FREE": lambda device: _amount(device.memory_free_mib, " MiB"),
}

Image = Annotated[str | None, typer.Option("--image", help="The image to run.")]
Patience = Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for the answer at most.")]


@app.command("list")
def list_units(
    spec: OnlySpec = None,
    phase: OnlyPhase = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the units."""
    with connect(url) as client:
        answer = client.units.list(spec, phase)
    empty = "there are no such units; `gpu-platform units create` makes one"
    print_list(answer, COLUMNS, empty=empty, as_json=as_json)


def _build_fields(unit: UnitView) -> dict[str, object]:
    return {
        "name": unit.name,
        "namespace": unit.namespace,
        "phase": coloured(unit.phase),
        "why": describe_reason(unit),
        "access": unit.access_url,
        "proxy": unit.proxy_url,
        "public": unit.public_url or unit.public_message,
        "ssh": unit.ssh_status.access_command if unit.ssh_status else None,
        "spec": unit.spec_name,
        "gpu": unit.gpu,
        "memory": unit.memory,
        "image": unit.image,
        **build_template_fields(unit.template),
        "ports": "\n".join(f"{port.name}={port.port}/{port.protocol}" for port in unit.template.ports),
        "mounts": "\n".join(
            f"{mount.name} at {mount.mount_path}{' (read only)' if mount.read_only else ''}"
            for mount in unit.storage_mounts
        ),
        "node": unit.node_name,
        "stock": unit.source_stock_name,
        "operation": unit.operation_id,
        "stack": unit.stack,
        "age": build_age(unit.created_at, now()),
    }


add_show(app, "get", "Show a unit.", lambda client: client.units.get, _build_fields)


@app.command()
@with_options
def create(
    name: Name,
    spec: SpecOrFile = None,
    image: Image = None,
    unit: NewUnitOptions = NewUnitOptions(),  # noqa: B008 - a value
    stock: Annotated[str | None, typer.Option("--stock", help="Take exactly this stock unit.")] = None,
    ssh: SshOptions = SshOptions(),  # noqa: B008 - a value
    file: File = None,
    operation_id: OperationId = None,
    wait: Wait = False,
    wait_recorded: Annotated[
        bool, typer.Option("--wait-recorded", help="Stay until its stack is recorded; exit with 1 when it is not.")
    ] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create a unit from warm stock."""
    options = {
        **drop_none(specName=spec, stockName=stock, image=image or None),
        **unit.build_request(),
        **ssh.build_request(),
    }
    request = build_create(file, options, name, operation_id, {"specName": "--spec", "image": "--image"})
    with WaitOptions(wait, timeout, as_json, url).connect() as session:
        with replayable(request["operationID"]):
            answer = session.client.units.create(request)
        print_replay(answer, name, as_json=as_json)
        if wait_recorded:
            _wait_recorded(session, name)
        _finish(session, answer, "Ready")


@app.command()
@with_options
def update(
    name: Name,
    image: Image = None,
    unit: UnitOptions = UnitOptions(),  # noqa: B008 - a value
    unmount: Annotated[bool, typer.Option("--unmount", help="Mount nothing any more.")] = False,
    file: File = None,
    waiting: WaitOptions = WaitOptions(),  # noqa: B008 - a value
) -> None:
    """Change a unit. A list (arguments, variables, ports, mounts) replaces the old one; what is not named stays."""
    if unmount and unit.mount:
        raise typer.BadParameter("say either --mount or --unmount")
    mounts: Json = {"storageMounts": []} if unmount else {}
    options = {**drop_none(image=image or None), **unit.build_request(), **mounts}
    change = Update(UNIT, name, read_file(file), options)
    with waiting.connect() as session:
        units = session.client.units
        current = units.get(name)
        answer = units.update(name, change.build_request(_as_requested(current.document)), etag=current.etag)
        # A stopped unit can be changed, and stays stopped.
        _finish(session, answer, "Ready" if answer.value.running else "Stopped")


@app.command()
@with_options
def delete(names: Names, waiting: WaitOptions = WaitOptions()) -> None:  # noqa: B008 - a value
    """Delete units. One that cannot be deleted does not keep the others."""
    with waiting.connect() as session:
        units = session.client.units
        delete_each(session, units, "units", names, units.delete)


def _add_action(
    command: str, explanation: str, act: Callable[[RawClient], Callable[[str], Answer[UnitView]]], goal: str
) -> None:
    @app.command(command, help=explanation)
    @with_options
    def action(name: Name, waiting: WaitOptions = WaitOptions()) -> None:  # noqa: B008 - a value
        with waiting.connect() as session:
            _finish(session, act(session.client)(name), goal)


_add_action("stop", "Stop a unit: its GPUs become free, what it is stays.", lambda client: client.units.stop, "Stopped")
_add_action("start", "Start a stopped unit, from warm stock.", lambda client: client.units.start, "Ready")
_add_action("restart", "Restart a unit in its place.", lambda client: client.units.restart, "Ready")


def _finish(session: Session, answer: Answer[UnitView], goal: str) -> None:
    """Waits, where that is wanted, and says how the unit is."""
    deadline = session.deadline
    if session.waits:
        name, generation = answer.value.name, answer.value.generation
        wait = session.client.units.wait.build(name, goal, generation=generation, timeout=deadline)
        answer = wait_for(session.client, wait, build_goes_on("units", name))

    def show(unit: UnitView) -> None:
        why = describe_reason(unit)
        if session.waits:
            place = f" at {unit.access_url}" if goal == "Ready" and unit.access_url else ""
            seconds = deadline.reached_seconds or deadline.elapsed_seconds()
            print_line(f"{unit.name} is ", coloured(goal), f" after {seconds:.1f} s{place}")
        else:
            print_line(f"{unit.name}: ", coloured(unit.phase), f" ({why})" if why else "")

    print_answer(answer, show, as_json=session.as_json)


def _wait_recorded(session: Session, name: str) -> None:
    wait = session.client.units.wait_recorded.build(name, timeout=session.deadline)
    stack = wait_for(session.client, wait, build_goes_on("units", name)).value
    if not session.as_json:
        print_line(f"{name} is recorded as {stack.name} after {session.deadline.elapsed_seconds():.1f} s")


def _as_requested(unit: Json) -> Json:
    """The view without what no request may hold."""
    ssh = {name: value for name, value in (unit.get("ssh") or {}).items() if name != "hasToken"}
    return {**unit, "ssh": ssh or None}


add_stack(app, "Show what Pulumi has recorded of a unit.", lambda client: client.units.stack)


@app.command()
def preview(
    name: Name,
    operation_id: OperationId = None,
    timeout: Patience = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show what Pulumi would change to make a unit as it was accepted. Nothing is changed."""
    with connect(url) as client:
        deadline = Deadline(timeout)
        operation = client.units.preview(name, operation_id).value.operation_id
        found = wait_for(
            client,
            client.units.wait_preview.build(name, operation, timeout=deadline),
            f"the preview goes on: the same command with  --operation-id {operation}  shows it",
        )
    print_answer(found, _print_preview, as_json=as_json)


def _print_preview(preview: PreviewView) -> None:
    steps = [step for step in preview.steps or () if step.op != "same"]
    if not steps:
        print_line(f"{preview.unit}: no changes")
        return
    for step in steps:
        print_line(coloured(step.op), f"  {step.type}  {step.resource}")
        if step.properties:
            rows = [(each.path, each.kind, f"{plain(each.old)} -> {plain(each.new)}") for each in step.properties]
            print_rows(("PATH", "KIND", "CHANGE"), rows, empty="")
    counts = ", ".join(f"{count} {op}" for op, count in (preview.changes or {}).items())
    print_line(f"{preview.unit}: {counts}")


add_events(app, "Show what happened to a unit, oldest first.", lambda client: client.units.events)


@app.command()
def logs(
    name: Name,
    follow: Follow = False,
    tail: Tail = None,
    previous: Previous = False,
    timestamps: Timestamps = False,
    container: Annotated[str | None, typer.Option(help="Of its SSH: ssh-server or ssh-frpc.")] = None,
    url: Url = None,
) -> None:
    """Show what a unit writes."""
    with connect(url) as client:
        print_logs(
            client.units.logs(
                name, follow=follow, tail=tail, previous=previous, timestamps=timestamps, container=container
            )
        )


@app.command()
def metrics(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show how busy a unit's GPUs are, and how much of their memory is used."""
    with connect(url) as client:
        answer = client.units.metrics(name)

    def show(read: UnitMetricsView) -> None:
        rows = ([find(device) for find in GPU_COLUMNS.values()] for device in read.devices)
        print_rows(tuple(GPU_COLUMNS), rows, empty=f"nobody says which GPUs are those of {name}; does it run?")

    print_answer(answer, show, as_json=as_json)


@app.command("url")
def address(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Print where a unit answers, and nothing else: on this machine, on the internet, or else through the platform."""
    with connect(url) as client:
        answer = client.units.address(name)
    print_answer(answer, _print_address, as_json=as_json)


def _print_address(place: AddressView) -> None:
    if place.reach == "host":
        typer.echo(place.url)
    elif place.public_url:
        typer.echo(place.public_url)
    elif place.proxy_url:
        typer.echo(place.proxy_url)
        print_remark('this goes through the platform: send `-H "Authorization: Bearer $GPU_PLATFORM_KEY"` with it')
    else:
        typer.echo(place.url)
        print_remark("this address answers inside the cluster only")


@app.command()
def ssh(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Print the command that logs in to a unit, and nothing else."""
    with connect(url) as client:
        answer = client.units.get(name)
    status, raw_status = answer.value.ssh_status, answer.document.get("sshStatus") or {}
    if status and status.access_command:
        if as_json:
            print_json(raw_status)
        else:
            typer.echo(status.access_command)
        return
    is_asked_for = answer.value.ssh is not None
    why = f"its SSH is {status.phase if status else 'Pending'}" if is_asked_for else "it was rented without SSH"
    if as_json:
        print_json({**raw_status, "message": why})
    raise PlatformError(f"nobody can log in to {name}: {why}; see `gpu-platform units get {name}`")


@app.command()
def watch(as_json: AsJson = False, url: Url = None) -> None:
    """Print a line whenever a unit changes. Ctrl-C ends it."""
    with connect(url) as client:
        for event in client.units.watch():
            print_event(event, _print_change, as_json=as_json)


def _amount(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.0f}{unit}"


def _print_change(time: str, event: ServerEvent[UnitView]) -> None:
    if not isinstance(event.data, dict) or "name" not in event.data or (unit := event.object) is None:
        print_line(f"{time}  {event.event}")
        return
    kind = (f"{event.event:<8}", str(coloured(event.event).style))
    state = describe_state(unit).removeprefix(unit.phase)
    print_line(f"{time}  ", kind, f"  {unit.name}  ", coloured(unit.phase), state)
