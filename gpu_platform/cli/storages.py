"""`gpu-platform storages`: a tenant's storages, which units mount."""

from typing import Annotated

import typer

from gpu_platform.cli import unit_options
from gpu_platform.cli.client import PlatformClient
from gpu_platform.cli.connection import connect
from gpu_platform.cli.errors import PlatformError
from gpu_platform.cli.failures import print_error
from gpu_platform.cli.options import DEFAULT_TIMEOUT, AsJson, Name, Names, OperationId, Timeout, Url, Wait, said
from gpu_platform.cli.replays import new_operation_id, replayable
from gpu_platform.cli.stacks import print_stack
from gpu_platform.cli.tables import (
    build_age,
    build_details,
    build_why,
    coloured,
    coloured_word,
    now,
    print_json,
    print_line,
    print_rows,
    print_table,
)
from gpu_platform.cli.verdicts import build_state, judge_gone, judge_ready, judge_recovered
from gpu_platform.cli.views import Json, StorageView
from gpu_platform.cli.waiting import Deadline, wait_for

app = typer.Typer(help="Your storages: volumes that outlive the units which mount them.", no_args_is_help=True)

Size = Annotated[str | None, typer.Option("--size", help="How large, such as 100Gi. It may grow later.")]
AccessorSwitch = Annotated[
    bool | None, typer.Option("--accessor/--no-accessor", help="A file browser that only reads (off).")
]
Retain = Annotated[
    bool | None, typer.Option("--retain/--no-retain", help="Keep the data when the storage is deleted (off).")
]


@app.command("list")
def list_storages(
    phase: Annotated[str | None, typer.Option(help="Only those in this phase, such as Ready.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the storages."""
    with connect(url) as client:
        storages = client.list_storages(phase)
    if as_json:
        print_json(storages)
        return
    print_rows(
        ("NAME", "SIZE", "CAPACITY", "PHASE", "MOUNTED BY", "AGE", "REASON"),
        (
            (
                storage["name"],
                storage["size"],
                storage.get("capacity"),
                storage["phase"],
                ", ".join(storage["mountedBy"]),
                build_age(storage["createdAt"], now()),
                None if storage["phase"] == "Ready" else build_why(storage),
            )
            for storage in storages
        ),
        empty="there are no such storages; `gpu-platform storages create` makes one",
    )


@app.command()
def get(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show a storage."""
    with connect(url) as client:
        storage = client.get_storage(name).view
    if as_json:
        print_json(storage)
    else:
        _print_storage(storage)


@app.command()
def create(
    name: Name,
    size: Size = None,
    storage_class: Annotated[
        str | None, typer.Option("--class", help="Kubernetes storage class, instead of the platform's own.")
    ] = None,
    from_image: Annotated[
        str | None, typer.Option("--from-image", help="Fill it with this image, which finds it at /workspace.")
    ] = None,
    from_storage: Annotated[str | None, typer.Option("--from-storage", help="Fill it with a copy of this one.")] = None,
    command: Annotated[
        list[str] | None, typer.Option("--command", help="A word of the command that fills it; repeat it.")
    ] = None,
    arg: Annotated[list[str] | None, typer.Option("--arg", help="An argument of that, as --arg=-m; repeat it.")] = None,
    accessor: AccessorSwitch = None,
    retain: Retain = None,
    file: unit_options.File = None,
    operation_id: OperationId = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create a storage. With --wait, until it is filled and can be mounted."""
    content = unit_options.read_file(file)
    if content.get("name", name) != name:
        raise typer.BadParameter(f"it names {content['name']!r}, not {name!r}", param_hint="--file")
    operation = operation_id or str(content.get("operationID") or "") or new_operation_id()
    prepare = said(fromImage=from_image, fromStorageName=from_storage, command=command or None, args=arg or None)
    request: Json = {
        **content,
        "operationID": operation,
        "name": name,
        **said(storageClassName=storage_class, prepare=prepare or None),
        **_changes(size, accessor, retain),
    }
    if not request.get("size"):
        raise typer.BadParameter("is missing", param_hint="--size")
    with connect(url) as client:
        deadline = Deadline(timeout)
        with replayable(operation):
            accepted = client.create_storage(request)
        if not accepted.is_new and not as_json:
            print_line(f"{name} was accepted before, with the same operation")
        _finish(client, accepted.view, deadline if wait else None, as_json=as_json)


@app.command()
def update(
    name: Name,
    size: Size = None,
    accessor: AccessorSwitch = None,
    retain: Retain = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Change a storage: let it grow, or turn a switch. What is not said stays."""
    change = _changes(size, accessor, retain)
    if not change:
        raise typer.BadParameter("say what to change, such as --size")
    with connect(url) as client:
        deadline = Deadline(timeout)
        storage = client.update_storage(name, change)
        _finish(client, storage, deadline if wait else None, as_json=as_json)


@app.command()
def recover(
    name: Name,
    operation_id: OperationId = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Fill a storage once more, after that has failed. Refused while a unit mounts it."""
    operation = operation_id or new_operation_id()
    with connect(url) as client:
        deadline = Deadline(timeout)
        with replayable(operation):
            storage = client.recover_storage(name, operation)
        if not wait:
            _tell(storage, None, as_json=as_json)
            return
        digest = storage["prepareStatus"].get("observedDigest")
        seen = wait_for(
            name,
            lambda: client.find_storage(name),
            lambda storage: judge_recovered(storage, digest),
            deadline,
            goal="Ready",
        )
        _tell(seen or storage, deadline, as_json=as_json)


@app.command()
def delete(
    names: Names, wait: Wait = False, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False, url: Url = None
) -> None:
    """Delete storages, with their data. One that a unit mounts is kept, and does not keep the others."""
    leaving: list[str] = []
    with connect(url) as client:
        deadline = Deadline(timeout)
        for name in names:
            try:
                client.delete_storage(name)
            except PlatformError as error:
                print_error(error)
            else:
                leaving.append(name)
                if not as_json:
                    print_line(f"{name} is being deleted")
        for name in leaving if wait else ():
            _wait_gone(client, name, deadline)
            if not as_json:
                print_line(f"{name} is gone")
    if leaving != names:
        raise typer.Exit(1)


@app.command()
def stack(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show what Pulumi has recorded of a storage."""
    with connect(url) as client:
        print_stack(client.get_storage_stack(name), as_json=as_json)


def _changes(size: str | None, accessor: bool | None, retain: bool | None) -> Json:
    """Those that were said."""
    return {
        **said(size=size, retain=retain),
        **({} if accessor is None else {"accessor": {"enabled": accessor}}),
    }


def _finish(client: PlatformClient, storage: StorageView, deadline: Deadline | None, *, as_json: bool) -> None:
    """Waits, where that is wanted, and says how the storage is."""
    name = storage["name"]
    if deadline:
        storage = wait_for(name, lambda: client.find_storage(name), judge_ready, deadline, goal="Ready") or storage
    _tell(storage, deadline, as_json=as_json)


def _tell(storage: StorageView, deadline: Deadline | None, *, as_json: bool) -> None:
    if as_json:
        print_json(storage)
    elif deadline:
        print_line(f"{storage['name']} is ", coloured_word("Ready"), f" after {deadline.elapsed_seconds():.1f} s")
    else:
        print_line(f"{storage['name']}: {build_state(storage['phase'], build_why(storage))}")


def _wait_gone(client: PlatformClient, name: str, deadline: Deadline) -> None:
    wait_for(name, lambda: client.find_storage(name), judge_gone, deadline, goal="gone", absence_is_news=False)


def _print_storage(storage: StorageView) -> None:
    prepare, prepared, shown = storage.get("prepare") or {}, storage["prepareStatus"], storage["accessorStatus"]
    fields = {
        "name": storage["name"],
        "namespace": storage["namespace"],
        "phase": coloured(storage["phase"]),
        "why": build_why(storage),
        "size": storage["size"],
        "capacity": storage.get("capacity"),
        "class": storage.get("storageClassName"),
        "mounted by": ", ".join(storage["mountedBy"]),
        "filled from": prepare.get("fromImage") or prepare.get("fromStorageName"),
        "command": " ".join([*(prepare.get("command") or ()), *(prepare.get("args") or ())]),
        "preparation": build_state(prepared["phase"], prepared.get("message") or "") if prepare else None,
        "recovery": prepared.get("recoveryPhase") if prepare else None,
        "file browser": shown.get("accessURL") or shown["phase"],
        "retain": "yes" if storage["retain"] else None,
        "claim": storage.get("claimName"),
        "operation": storage.get("operationID"),
        "stack": storage.get("stack"),
        "age": build_age(storage["createdAt"], now()),
    }
    print_table(build_details(fields))
