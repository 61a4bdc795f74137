"""`gpu-platform storages`: a tenant's storages, which units mount."""

from typing import Annotated

import typer

from gpu_platform.api_models.storages import StorageView
from gpu_platform.cli.options import (
    AsJson,
    Follow,
    Name,
    Names,
    OnlyPhase,
    OperationId,
    Previous,
    Tail,
    Timestamps,
    Url,
    with_options,
)
from gpu_platform.cli.output import build_age, coloured, now, print_logs, print_replay
from gpu_platform.cli.request_files import (
    STORAGE,
    File,
    Update,
    build_create,
    new_operation_id,
    read_file,
    replayable,
)
from gpu_platform.cli.resources import Columns, add_events, add_show, add_stack, connect, print_list
from gpu_platform.cli.wait import WaitOptions, build_goes_on, delete_each, finish_ready, print_ready, wait_for
from gpu_platform.client.calls import drop_none
from gpu_platform.client.wait import describe_reason
from gpu_platform.domain.json_text import Json

app = typer.Typer(help="Your storages: volumes that outlive the units which mount them.", no_args_is_help=True)

COLUMNS: Columns[StorageView] = {
    "NAME": lambda storage: storage.name,
    "SIZE": lambda storage: storage.size,
    "CAPACITY": lambda storage: storage.capacity,
    "PHASE": lambda storage: storage.phase,
    "MOUNTED BY": lambda storage: ", ".join(storage.mounted_by),
    "AGE": lambda storage: build_age(storage.created_at, now()),
    "REASON": lambda storage: None if storage.phase == "Ready" else describe_reason(storage),
}

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
        answer = client.storages.list(phase)
    empty = "there are no such storages; `gpu-platform storages create` makes one"
    print_list(answer, COLUMNS, empty=empty, as_json=as_json)


def _build_fields(storage: StorageView) -> dict[str, object]:
    prepare, prepared, shown = storage.prepare, storage.prepare_status, storage.accessor_status
    preparation = f"{prepared.phase} ({prepared.message})" if prepared.message else prepared.phase
    return {
        "name": storage.name,
        "namespace": storage.namespace,
        "phase": coloured(storage.phase),
        "why": describe_reason(storage),
        "size": storage.size,
        "capacity": storage.capacity,
        "class": storage.storage_class_name,
        "mounted by": ", ".join(storage.mounted_by),
        "filled from": (prepare.from_image or prepare.from_storage_name) if prepare else None,
        "command": " ".join([*prepare.command, *prepare.args]) if prepare else None,
        "preparation": preparation if prepare else None,
        "recovery": prepared.recovery_phase if prepare else None,
        "file browser": storage.proxy_url or shown.phase,
        "retain": "yes" if storage.retain else None,
        "claim": storage.claim_name,
        "operation": storage.operation_id,
        "stack": storage.stack,
        "age": build_age(storage.created_at, now()),
    }


add_show(app, "get", "Show a storage.", lambda client: client.storages.get, _build_fields)


@app.command()
@with_options
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
    waiting: WaitOptions = WaitOptions(),  # noqa: B008 - a value
) -> None:
    """Create a storage. With --wait, until it is filled and can be mounted."""
    prepare = drop_none(fromImage=from_image, fromStorageName=from_storage, command=command or None, args=arg or None)
    options = {
        **drop_none(storageClassName=storage_class, prepare=prepare or None),
        **_changes(size, accessor, retain),
    }
    request = build_create(file, options, name, operation_id, {"size": "--size"})
    with waiting.connect() as session:
        storages = session.client.storages
        with replayable(request["operationID"]):
            answer = storages.create(request)
        print_replay(answer, name, as_json=session.as_json)
        finish_ready(session, storages, "storages", answer)


@app.command()
@with_options
def update(
    name: Name,
    size: Size = None,
    accessor: AccessorSwitch = None,
    retain: Retain = None,
    file: File = None,
    waiting: WaitOptions = WaitOptions(),  # noqa: B008 - a value
) -> None:
    """Change a storage: let it grow, or turn a switch. What is not named stays."""
    change = Update(STORAGE, name, read_file(file), _changes(size, accessor, retain))
    with waiting.connect() as session:
        storages = session.client.storages
        current = storages.get(name)
        answer = storages.update(name, change.build_request(current.document), etag=current.etag)
        finish_ready(session, storages, "storages", answer)


@app.command()
@with_options
def recover(
    name: Name,
    operation_id: OperationId = None,
    waiting: WaitOptions = WaitOptions(),  # noqa: B008 - a value
) -> None:
    """Fill a storage once more, after that has failed. Refused while a unit mounts it."""
    operation = operation_id or new_operation_id()
    with waiting.connect() as session:
        storages = session.client.storages
        with replayable(operation):
            answer = storages.recover(name, operation)
        if session.waits:
            failed_digest = answer.value.prepare_status.observed_digest
            wait_ready = storages.wait_recovered.build(name, failed_digest, timeout=session.deadline)
            answer = wait_for(session.client, wait_ready, build_goes_on("storages", name))
    print_ready(session, answer)


@app.command()
@with_options
def delete(names: Names, waiting: WaitOptions = WaitOptions()) -> None:  # noqa: B008 - a value
    """Delete storages, with their data. One that a unit mounts is kept, and does not keep the others; with --wait, one
    whose unit is being deleted is deleted as soon as that unit has released it."""
    with waiting.connect() as session:
        client = session.client

        def delete_released(name: str) -> None:
            deletion = client.storages.delete_released.build(name, timeout=session.deadline)
            wait_for(client, deletion, build_goes_on("storages", name))

        delete_one = delete_released if session.waits else client.storages.delete
        delete_each(session, client.storages, "storages", names, delete_one)


add_events(
    app,
    "Show what happened to a storage, its preparation and its file browser, oldest first.",
    lambda client: client.storages.events,
)


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
    of = "browser" if browser else None
    with connect(url) as client:
        print_logs(
            client.storages.logs(name, follow=follow, tail=tail, previous=previous, timestamps=timestamps, of=of)
        )


add_stack(app, "Show what Pulumi has recorded of a storage.", lambda client: client.storages.stack)


def _changes(size: str | None, accessor: bool | None, retain: bool | None) -> Json:
    """The fields of a change whose options are given."""
    return {
        **drop_none(size=size, retain=retain),
        **({} if accessor is None else {"accessor": {"enabled": accessor}}),
    }
