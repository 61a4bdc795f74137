"""What a unit says, what happens to it and where it is: `units events`, `logs`, `metrics`, `url`, `ssh`, `watch`."""

from typing import Annotated

import typer

from gpu_platform.cli.connection import connect
from gpu_platform.cli.errors import PlatformError
from gpu_platform.cli.options import AsJson, Follow, Name, Previous, Tail, Timestamps, Url, build_log_params, said
from gpu_platform.cli.output import (
    build_state,
    build_why,
    coloured,
    now,
    print_events,
    print_json,
    print_line,
    print_logs,
    print_remark,
    print_rows,
)
from gpu_platform.cli.server_events import ServerEvent
from gpu_platform.domain.json_text import Json


def add_commands(app: typer.Typer) -> None:
    app.command()(events)
    app.command()(logs)
    app.command()(metrics)
    app.command("url")(address)
    app.command()(ssh)
    app.command()(watch)


def events(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show what happened to a unit, oldest first."""
    with connect(url) as client:
        happened = client.list_unit_events(name)
    print_events(name, happened, as_json=as_json)


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
    params = build_log_params(follow=follow, tail=tail, previous=previous, timestamps=timestamps)
    with connect(url) as client:
        print_logs(client.read_unit_logs(name, params | said(container=container)))


def metrics(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show how busy a unit's GPUs are, and how much of their memory is used."""
    with connect(url) as client:
        read = client.get_unit_metrics(name)
    if as_json:
        print_json(read)
        return
    print_rows(
        ("GPU", "PRODUCT", "NODE", "BUSY", "MEMORY USED", "MEMORY FREE"),
        (
            (
                "/".join(part for part in (device["gpu"], device.get("partition")) if part),
                device["product"],
                device["node"],
                _amount(device.get("utilizationPercent"), "%"),
                _amount(device.get("memoryUsedMiB"), " MiB"),
                _amount(device.get("memoryFreeMiB"), " MiB"),
            )
            for device in read["devices"]
        ),
        empty=f"nobody says which GPUs are those of {name}; does it run?",
    )


def address(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Print where a unit answers, and nothing else: on this machine, on the internet, or else through the platform."""
    with connect(url) as client:
        place = client.get_address(name)
    if as_json:
        print_json(place)
        return
    if place["reach"] == "host":
        typer.echo(place["url"])
    elif for_everybody := place.get("publicURL"):
        typer.echo(for_everybody)
    elif through_us := place.get("proxyURL"):
        typer.echo(through_us)
        print_remark('this goes through the platform: send `-H "Authorization: Bearer $GPU_PLATFORM_KEY"` with it')
    else:
        typer.echo(place["url"])
        print_remark("this address answers inside the cluster only")


def ssh(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Print the command that logs in to a unit, and nothing else."""
    with connect(url) as client:
        unit = client.get_unit(name).view
    status: Json = dict(unit.get("sshStatus") or {})
    if command := status.get("accessCommand"):
        if as_json:
            print_json(status)
        else:
            typer.echo(command)
        return
    is_asked_for = unit.get("ssh") is not None
    why = f"its SSH is {status.get('phase') or 'Pending'}" if is_asked_for else "it was rented without SSH"
    if as_json:
        print_json({**status, "message": why})
    raise PlatformError(f"nobody can log in to {name}: {why}; see `gpu-platform units get {name}`")


def watch(as_json: AsJson = False, url: Url = None) -> None:
    """Print a line whenever a unit changes. Ctrl-C ends it."""
    with connect(url) as client:
        for event in client.watch_units():
            if as_json:
                raw = {"event": event.event, "id": event.id, "data": event.data}
                print_json(raw, indent=None)
            else:
                _print_event(event)


def _amount(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.0f}{unit}"


def _print_event(event: ServerEvent) -> None:
    time = now().astimezone().strftime("%H:%M:%S")
    unit = event.data if isinstance(event.data, dict) else {}
    if "name" not in unit:
        print_line(f"{time}  {event.event}")
        return
    phase = unit.get("phase") or "Pending"
    state = build_state(phase, build_why(unit)).removeprefix(phase)
    word, kind = coloured(phase), coloured(event.event)
    print_line(
        f"{time}  ", (f"{event.event:<8}", str(kind.style)), f"  {unit['name']}  ", (phase, str(word.style)), state
    )
