"""`gpu-platform storages`: a tenant's storages, which units mount."""

from functools import partial
from typing import Annotated

import typer

from gpu_platform.cli.client import PlatformClient
from gpu_platform.cli.connection import connect
from gpu_platform.cli.errors import ApiError
from gpu_platform.cli.options import (
    DEFAULT_TIMEOUT,
    AsJson,
    Follow,
    Name,
    Names,
    OnlyPhase,
    OperationId,
    Previous,
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
    build_state,
    build_why,
    coloured,
    now,
    print_events,
    print_json,
    print_logs,
    print_replay,
    print_rows,
    print_table,
)
from gpu_platform.cli.request_files import (
    STORAGE,
    File,
    Update,
    build_create,
    choose_operation_id,
    new_operation_id,
    read_file,
    replayable,
    require_said,
)
from gpu_platform.cli.stacks import print_stack
from gpu_platform.cli.views import StorageView
from gpu_platform.cli.wait import (
    Deadline,
    build_goes_on,
    delete_each,
    finish_ready,
    judge_accepted,
    judge_recovered,
    print_ready,
    wait_for,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import will_release

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
    phase: OnlyPhase = None,
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
    file: File = None,
    operation_id: OperationId = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create a storage. With --wait, until it is filled and can be mounted."""
    content = read_file(file)
    operation = choose_operation_id(operation_id, content)
    prepare = said(fromImage=from_image, fromStorageName=from_storage, command=command or None, args=arg or None)
    options = {
        **said(storageClassName=storage_class, prepare=prepare or None),
        **_changes(size, accessor, retain),
    }
    request = build_create(content, options, name, operation)
    require_said(request, {"size": "--size"})
    with connect(url) as client:
        deadline = Deadline(timeout)
        with replayable(operation):
            accepted = client.create_storage(request)
        print_replay(accepted, name, as_json=as_json)
        finish_ready("storages", accepted.view, client.find_storage, deadline if wait else None, as_json=as_json)


@app.command()
def update(
    name: Name,
    size: Size = None,
    accessor: AccessorSwitch = None,
    retain: Retain = None,
    file: File = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Change a storage: let it grow, or turn a switch. What is not named stays."""
    change = Update(STORAGE, name, read_file(file), _changes(size, accessor, retain))
    with connect(url) as client:
        deadline = Deadline(timeout)
        current = client.get_storage(name)
        storage = client.update_storage(name, change.build_request(current.view), current.etag)
        finish_ready("storages", storage, client.find_storage, deadline if wait else None, as_json=as_json)


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
            print_ready(storage, None, as_json=as_json)
            return
        digest = storage["prepareStatus"].get("observedDigest")
        seen = wait_for(
            name,
            lambda: client.find_storage(name),
            lambda storage: judge_recovered(storage, digest),
            deadline,
            goal="Ready",
            goes_on=build_goes_on("storages", name),
        )
        print_ready(seen or storage, deadline, as_json=as_json)


@app.command()
def delete(
    names: Names, wait: Wait = False, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False, url: Url = None
) -> None:
    """Delete storages, with their data. One that a unit mounts is kept, and does not keep the others; with --wait, one
    whose unit is being deleted is deleted as soon as that unit has released it."""
    with connect(url) as client:
        deadline = Deadline(timeout) if wait else None
        delete = partial(_delete_released, client, deadline) if deadline else client.delete_storage
        delete_each("storages", names, delete, client.find_storage, deadline, as_json=as_json)


@app.command()
def events(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show what happened to a storage, its preparation and its file browser, oldest first."""
    with connect(url) as client:
        happened = client.list_storage_events(name)
    print_events(name, happened, as_json=as_json)


@app.command()
def logs(
    name: Name,
    follow: Follow = False,
    tail: Tail = None,
    previous: Previous = False,
    timestamps: Timestamps = False,
    browser: Annotated[bool, typer.Option("--browser", help="Of its file browser instead.")] = False,
    url: Url = None,
) -> None:
    """Show what a storage's preparation writes, or wrote: it is kept for a day, of a copy if it failed."""
    params = build_log_params(follow=follow, tail=tail, previous=previous, timestamps=timestamps)
    with connect(url) as client:
        print_logs(client.read_storage_logs(name, params | said(of="browser" if browser else None)))


@app.command()
def stack(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show what Pulumi has recorded of a storage."""
    with connect(url) as client:
        print_stack(client.get_storage_stack(name), as_json=as_json)


def _delete_released(client: PlatformClient, deadline: Deadline, name: str) -> None:
    def look() -> str:
        """Why it is not deleted yet."""
        try:
            client.delete_storage(name)
        except ApiError as error:
            if error.code != "storage_in_use" or not _will_be_released(client, name):
                raise
            return str(error)
        return ""

    goes_on = build_goes_on("storages", name)
    wait_for(name, look, judge_accepted, deadline, goal="deleted", goes_on=goes_on, absence_is_news=False)


def _will_be_released(client: PlatformClient, name: str) -> bool:
    storage = client.find_storage(name)
    return storage is None or all(will_release(client.find_unit(unit), name) for unit in storage["mountedBy"])


def _changes(size: str | None, accessor: bool | None, retain: bool | None) -> Json:
    """Those that were said."""
    return {
        **said(size=size, retain=retain),
        **({} if accessor is None else {"accessor": {"enabled": accessor}}),
    }


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
        "file browser": storage.get("proxyURL") or shown["phase"],
        "retain": "yes" if storage["retain"] else None,
        "claim": storage.get("claimName"),
        "operation": storage.get("operationID"),
        "stack": storage.get("stack"),
        "age": build_age(storage["createdAt"], now()),
    }
    print_table(build_details(fields))
