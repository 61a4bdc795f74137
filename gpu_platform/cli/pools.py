"""`gpu-platform pools`: how much stock is held, for operators."""

from enum import StrEnum
from typing import Annotated

import typer

from gpu_platform.api_models.stock import PoolView
from gpu_platform.cli.jobs import finish_job
from gpu_platform.cli.options import AsJson, Gpu, Memory, Name, OperationId, SpecOrFile, Url, with_options
from gpu_platform.cli.output import build_age, coloured, now, print_answer, print_line
from gpu_platform.cli.request_files import POOL, File, Update, build_create, read_file, replayable
from gpu_platform.cli.resources import Columns, add_delete, add_show, add_stack, connect, print_list
from gpu_platform.cli.wait import WaitOptions, build_goes_on
from gpu_platform.client.calls import drop_none
from gpu_platform.client.wait import describe_reason, describe_state

app = typer.Typer(help="Pools, which hold warm stock. For operators.", no_args_is_help=True)

COLUMNS: Columns[PoolView] = {
    "NAME": lambda pool: pool.name,
    "SPEC": lambda pool: pool.spec_name,
    "REPLICAS": lambda pool: pool.replicas,
    "AVAILABLE": lambda pool: pool.available,
    "CLAIMED": lambda pool: pool.claimed,
    "REPLENISH": lambda pool: pool.replenish,
    "PHASE": lambda pool: pool.phase,
    "AGE": lambda pool: build_age(pool.created_at, now()),
    "REASON": lambda pool: None if pool.phase == "Ready" else describe_reason(pool),
}


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
        answer = client.pools.list()
    print_list(answer, COLUMNS, empty="there are no pools; `gpu-platform pools create` makes one", as_json=as_json)


def _build_fields(pool: PoolView) -> dict[str, object]:
    return {
        "name": pool.name,
        "phase": coloured(pool.phase),
        "why": describe_reason(pool),
        "spec": pool.spec_name,
        "replicas": pool.replicas,
        "replenish": pool.replenish,
        "available": pool.available,
        "claimed": pool.claimed,
        "image": pool.image,
        "stack": pool.stack,
        "age": build_age(pool.created_at, now()),
    }


add_show(app, "get", "Show a pool.", lambda client: client.pools.get, _build_fields)


@app.command()
@with_options
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
    waiting: WaitOptions = WaitOptions(),  # noqa: B008 - a value
) -> None:
    """Create a pool. With --wait, until it is full."""
    options = drop_none(specName=spec, replicas=replicas, replenish=replenish, image=image, memory=memory, gpu=gpu)
    request = build_create(file, options, name, operation_id, {"specName": "--spec", "replicas": "--replicas"})
    with waiting.connect() as session:
        pools = session.client.pools
        with replayable(request["operationID"]):
            answer = pools.create(request)
        pool = answer.value.object_name
        wait = pools.wait.build(pool, timeout=session.deadline)
        finish_job(session, answer, f"pool {pool}", wait, build_goes_on("pools", pool))


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
    change = Update(POOL, name, read_file(file), drop_none(replicas=replicas, replenish=replenish, image=image))
    with connect(url) as client:
        answer = client.pools.update(name, change.build_request(client.pools.get(name).document))
    print_answer(answer, _print_change, as_json=as_json)


def _print_change(pool: PoolView) -> None:
    print_line(f"{pool.name}: {pool.replicas} replicas, {pool.replenish}; {describe_state(pool)}")


add_delete(
    app, "Delete a pool and its free stock. Units that were made from it stay.", lambda client: client.pools.delete
)
add_stack(app, "Show what Pulumi has recorded of a pool.", lambda client: client.pools.stack)
