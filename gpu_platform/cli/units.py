"""`gpu-platform units`: a tenant's units."""

from collections.abc import Callable
from typing import Annotated

import typer

from gpu_platform.cli import ssh_options, stacks, unit_options, unit_streams
from gpu_platform.cli.client import PlatformClient
from gpu_platform.cli.connection import connect
from gpu_platform.cli.options import (
    DEFAULT_TIMEOUT,
    AsJson,
    Name,
    Names,
    OnlyPhase,
    OnlySpec,
    OperationId,
    SpecOrFile,
    Timeout,
    Url,
    Wait,
    said,
)
from gpu_platform.cli.output import (
    build_age,
    build_details,
    build_template_fields,
    build_why,
    coloured,
    coloured_word,
    now,
    print_json,
    print_line,
    print_replay,
    print_rows,
    print_table,
)
from gpu_platform.cli.request_files import (
    UNIT,
    File,
    Update,
    build_create,
    choose_operation_id,
    read_file,
    replayable,
    require_said,
)
from gpu_platform.cli.ssh_options import SshOptions
from gpu_platform.cli.unit_options import Scheme, UnitOptions
from gpu_platform.cli.views import UnitView
from gpu_platform.cli.wait import Deadline, build_goes_on, delete_each, find_steady_seconds, judge_settled, wait_for
from gpu_platform.domain.json_text import Json

app = typer.Typer(help="Your units: running images with GPUs.", no_args_is_help=True)

HEADERS = ("NAME", "SPEC", "PHASE", "NODE", "AGE", "DETAIL")

Image = Annotated[str | None, typer.Option("--image", help="The image to run.")]


@app.command("list")
def list_units(
    spec: OnlySpec = None,
    phase: OnlyPhase = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the units."""
    with connect(url) as client:
        units = client.list_units(spec, phase)
    if as_json:
        print_json(units)
        return
    print_rows(
        HEADERS,
        (
            (
                unit["name"],
                unit["specName"],
                unit["phase"],
                unit.get("nodeName"),
                build_age(unit["createdAt"], now()),
                unit.get("accessURL") if unit["phase"] == "Ready" else build_why(unit),
            )
            for unit in units
        ),
        empty="there are no such units; `gpu-platform units create` makes one",
    )


@app.command()
def get(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show a unit."""
    with connect(url) as client:
        unit = client.get_unit(name).view
    if as_json:
        print_json(unit)
    else:
        _print_unit(unit)


@app.command()
def create(
    name: Name,
    spec: SpecOrFile = None,
    image: Image = None,
    command: unit_options.Command = None,
    arg: unit_options.Arg = None,
    env: unit_options.Env = None,
    port: unit_options.Port = None,
    primary_port: unit_options.PrimaryPort = None,
    scheme: Annotated[Scheme | None, typer.Option(help="First word of the unit's URL (http).")] = None,
    public: unit_options.Public = None,
    tenant_access: unit_options.TenantAccess = None,
    startup_probe: unit_options.StartupProbe = None,
    readiness_probe: unit_options.ReadinessProbe = None,
    liveness_probe: unit_options.LivenessProbe = None,
    mount: unit_options.Mount = None,
    stock: Annotated[str | None, typer.Option("--stock", help="Take exactly this stock unit.")] = None,
    ssh_key: ssh_options.Keys = None,
    ssh_server: ssh_options.Server = None,
    ssh_domain: ssh_options.Domain = None,
    ssh_token_file: ssh_options.TokenFile = None,
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
    content = read_file(file)
    probes = {"startup": startup_probe, "readiness": readiness_probe, "liveness": liveness_probe}
    options = {
        **said(specName=spec, stockName=stock),
        **UnitOptions(
            image, command, arg, env, port, primary_port, scheme, mount, public, probes, tenant_access
        ).build_request(),
        **SshOptions(ssh_key, ssh_server, ssh_domain, ssh_token_file).build_request(),
    }
    operation = choose_operation_id(operation_id, content)
    request = build_create(content, options, name, operation)
    require_said(request, {"specName": "--spec", "image": "--image"})
    with connect(url) as client:
        deadline = Deadline(timeout)
        with replayable(operation):
            accepted = client.create_unit(request)
        print_replay(accepted, name, as_json=as_json)
        if wait_recorded:
            stacks.wait_recorded(client, name, deadline, as_json=as_json)
        _finish(client, accepted.view, deadline if wait else None, "Ready", as_json=as_json)


@app.command()
def update(
    name: Name,
    image: Image = None,
    command: unit_options.Command = None,
    arg: unit_options.Arg = None,
    env: unit_options.Env = None,
    port: unit_options.Port = None,
    primary_port: unit_options.PrimaryPort = None,
    scheme: Annotated[Scheme | None, typer.Option(help="First word of the unit's URL.")] = None,
    public: unit_options.Public = None,
    tenant_access: unit_options.TenantAccess = None,
    startup_probe: unit_options.StartupProbe = None,
    readiness_probe: unit_options.ReadinessProbe = None,
    liveness_probe: unit_options.LivenessProbe = None,
    mount: unit_options.Mount = None,
    unmount: Annotated[bool, typer.Option("--unmount", help="Mount nothing any more.")] = False,
    file: File = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Change a unit. A list (arguments, variables, ports, mounts) replaces the old one; what is not named stays."""
    if unmount and mount:
        raise typer.BadParameter("say either --mount or --unmount")
    probes = {"startup": startup_probe, "readiness": readiness_probe, "liveness": liveness_probe}
    options = {
        **UnitOptions(
            image, command, arg, env, port, primary_port, scheme, mount, public, probes, tenant_access
        ).build_request(),
        **({"storageMounts": []} if unmount else {}),
    }
    change = Update(UNIT, name, read_file(file), options)
    with connect(url) as client:
        deadline = Deadline(timeout)
        current = client.get_unit(name)
        unit = client.update_unit(name, change.build_request(_as_requested(current.view)), current.etag)
        _finish(client, unit, deadline if wait else None, _goal_of(unit), as_json=as_json)


@app.command()
def delete(
    names: Names, wait: Wait = False, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False, url: Url = None
) -> None:
    """Delete units. One that cannot be deleted does not keep the others."""
    with connect(url) as client:
        deadline = Deadline(timeout) if wait else None
        delete_each("units", names, client.delete_unit, client.find_unit, deadline, as_json=as_json)


@app.command()
def stop(
    name: Name, wait: Wait = False, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False, url: Url = None
) -> None:
    """Stop a unit: its GPUs become free, what it is stays."""
    _act(url, lambda client: client.stop_unit(name), Deadline(timeout) if wait else None, "Stopped", as_json=as_json)


@app.command()
def start(
    name: Name, wait: Wait = False, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False, url: Url = None
) -> None:
    """Start a stopped unit, from warm stock."""
    _act(url, lambda client: client.start_unit(name), Deadline(timeout) if wait else None, "Ready", as_json=as_json)


@app.command()
def restart(
    name: Name, wait: Wait = False, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False, url: Url = None
) -> None:
    """Restart a unit in its place."""
    _act(url, lambda client: client.restart_unit(name), Deadline(timeout) if wait else None, "Ready", as_json=as_json)


def _act(
    url: str | None, act: Callable[[PlatformClient], UnitView], deadline: Deadline | None, goal: str, *, as_json: bool
) -> None:
    with connect(url) as client:
        _finish(client, act(client), deadline, goal, as_json=as_json)


def _finish(client: PlatformClient, unit: UnitView, deadline: Deadline | None, goal: str, *, as_json: bool) -> None:
    """Waits, where that is wanted, and says how the unit is."""
    if deadline:
        unit = _wait_settled(client, unit, deadline, goal)
    if as_json:
        print_json(unit)
    elif deadline:
        place = f" at {unit['accessURL']}" if goal == "Ready" and unit.get("accessURL") else ""
        seconds = deadline.reached_seconds or deadline.elapsed_seconds()
        print_line(f"{unit['name']} is ", coloured_word(goal), f" after {seconds:.1f} s{place}")
    else:
        why = build_why(unit)
        print_line(f"{unit['name']}: ", coloured_word(unit["phase"]), f" ({why})" if why else "")


def _wait_settled(client: PlatformClient, unit: UnitView, deadline: Deadline, phase: str) -> UnitView:
    name, generation = unit["name"], unit["generation"]
    settled = wait_for(
        name,
        lambda: client.find_unit(name),
        lambda seen: judge_settled(seen, phase, generation),
        deadline,
        goal=phase,
        goes_on=build_goes_on("units", name),
        steady_seconds=find_steady_seconds(unit, phase),
    )
    return settled or unit


def _as_requested(unit: UnitView) -> Json:
    """The view without what no request may hold."""
    ssh = {name: value for name, value in (unit.get("ssh") or {}).items() if name != "hasToken"}
    return {**unit, "ssh": ssh or None}


def _goal_of(unit: UnitView) -> str:
    """A stopped unit can be changed, and stays stopped."""
    return "Ready" if unit["running"] else "Stopped"


def _print_unit(unit: UnitView) -> None:
    template = unit.get("template") or {}
    gpu = unit.get("gpu")
    fields = {
        "name": unit["name"],
        "namespace": unit["namespace"],
        "phase": coloured(unit["phase"]),
        "why": build_why(unit),
        "access": unit.get("accessURL"),
        "proxy": unit.get("proxyURL"),
        "public": unit.get("publicURL") or unit.get("publicMessage"),
        "ssh": (unit.get("sshStatus") or {}).get("accessCommand"),
        "spec": unit["specName"],
        "gpu": gpu,
        "memory": unit.get("memory"),
        "image": unit.get("image"),
        **build_template_fields(template),
        "ports": "\n".join(
            f"{port['name']}={port['port']}/{port.get('protocol', 'TCP')}" for port in template.get("ports") or ()
        ),
        "mounts": "\n".join(
            f"{mount['name']} at {mount['mountPath']}{' (read only)' if mount.get('readOnly') else ''}"
            for mount in unit.get("storageMounts") or ()
        ),
        "node": unit.get("nodeName"),
        "stock": unit.get("sourceStockName"),
        "operation": unit.get("operationID"),
        "stack": unit.get("stack"),
        "age": build_age(unit["createdAt"], now()),
    }
    print_table(build_details(fields))


stacks.add_commands(app)
unit_streams.add_commands(app)
