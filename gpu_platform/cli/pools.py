"""`gpu-platform pools`: how much stock is held, for operators."""

from enum import StrEnum
from typing import Annotated

import typer

from gpu_platform.cli.connection import connect
from gpu_platform.cli.jobs import finish_job
from gpu_platform.cli.options import (
    DEFAULT_TIMEOUT,
    AsJson,
    Gpu,
    Memory,
    Name,
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
    build_state,
    build_why,
    coloured,
    now,
    print_json,
    print_line,
    print_rows,
    print_table,
)
from gpu_platform.cli.request_files import (
    POOL,
    File,
    Update,
    build_create,
    choose_operation_id,
    read_file,
    replayable,
    require_said,
)
from gpu_platform.cli.stacks import print_stack
from gpu_platform.cli.views import JobView, PoolView
from gpu_platform.cli.wait import Deadline, build_goes_on, judge_ready, wait_for

app = typer.Typer(help="Pools, which hold warm stock. For operators.", no_args_is_help=True)


class Replenish(StrEnum):
    ALWAYS = "Always"
    NEVER = "Never"


ReplenishOption = Annotated[
    Replenish | None, typer.Option("--replenish", help="Always: what is taken is made anew. Never: made once.")
]
Replicas = Annotated[int | None, typer.Option("--replicas", min=0, help="Free units to hold.")]
PoolImage = Annotated[str | None, typer.Option("--image", help="Image of the placeholder that holds the GPUs.")]


@app.command("list")
def list_pools(as_json: AsJson = False, url: Url = None) -> None:
    """List the pools."""
    with connect(url) as client:
        pools = client.list_pools()
    if as_json:
        print_json(pools)
        return
    print_rows(
        ("NAME", "SPEC", "REPLICAS", "AVAILABLE", "CLAIMED", "REPLENISH", "PHASE", "AGE", "REASON"),
        (
            (
                pool["name"],
                pool["specName"],
                pool["replicas"],
                pool["available"],
                pool["claimed"],
                pool["replenish"],
                pool["phase"],
                build_age(pool["createdAt"], now()),
                None if pool["phase"] == "Ready" else build_why(pool),
            )
            for pool in pools
        ),
        empty="there are no pools; `gpu-platform pools create` makes one",
    )


@app.command()
def get(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show a pool."""
    with connect(url) as client:
        pool = client.get_pool(name)
    if as_json:
        print_json(pool)
    else:
        _print_pool(pool)


@app.command()
def create(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Its name; by default the API makes one.")] = None,
    spec: SpecOrFile = None,
    replicas: Replicas = None,
    replenish: ReplenishOption = None,
    image: PoolImage = None,
    memory: Memory = None,
    gpu: Gpu = None,
    file: File = None,
    operation_id: OperationId = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Create a pool. With --wait, until it is full."""
    content = read_file(file)
    operation = choose_operation_id(operation_id, content)
    options = said(specName=spec, replicas=replicas, replenish=replenish, image=image, memory=memory, gpu=gpu)
    request = build_create(content, options, name, operation)
    require_said(request, {"specName": "--spec", "replicas": "--replicas"})
    with connect(url) as client:
        deadline = Deadline(timeout)
        with replayable(operation):
            accepted = client.create_pool(request)
        pool = accepted.view["objectName"]

        def wait_filled(job: JobView) -> None:
            wait_for(
                f"pool {pool}",
                lambda: client.find_pool(job["objectName"]),
                judge_ready,
                deadline,
                goal="Ready",
                goes_on=build_goes_on("pools", pool),
            )

        finish_job(client, accepted, deadline if wait else None, wait_filled, as_json=as_json)
    if wait and not as_json:
        print_line(f"pool {pool} is ready after {deadline.elapsed_seconds():.1f} s")


@app.command()
def update(
    name: Name,
    replicas: Replicas = None,
    replenish: ReplenishOption = None,
    image: PoolImage = None,
    file: File = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Change a pool. What is not named stays."""
    change = Update(POOL, name, read_file(file), said(replicas=replicas, replenish=replenish, image=image))
    with connect(url) as client:
        pool = client.update_pool(name, change.build_request(client.get_pool(name)))
    if as_json:
        print_json(pool)
    else:
        state = build_state(pool["phase"], build_why(pool))
        print_line(f"{pool['name']}: {pool['replicas']} replicas, {pool['replenish']}; {state}")


@app.command()
def delete(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Delete a pool and its free stock. Units that were made from it stay."""
    with connect(url) as client:
        client.delete_pool(name)
    if not as_json:
        print_line(f"{name} is being deleted")


@app.command()
def stack(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show what Pulumi has recorded of a pool."""
    with connect(url) as client:
        print_stack(client.get_pool_stack(name), as_json=as_json)


def _print_pool(pool: PoolView) -> None:
    fields = {
        "name": pool["name"],
        "phase": coloured(pool["phase"]),
        "why": build_why(pool),
        "spec": pool["specName"],
        "replicas": pool["replicas"],
        "replenish": pool["replenish"],
        "available": pool["available"],
        "claimed": pool["claimed"],
        "image": pool.get("image"),
        "stack": pool.get("stack"),
        "age": build_age(pool["createdAt"], now()),
    }
    print_table(build_details(fields))
