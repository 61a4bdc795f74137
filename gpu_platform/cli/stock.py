"""`gpu-platform stock`: warm stock, for operators."""

from enum import StrEnum
from typing import Annotated

import typer

from gpu_platform.api_models.stock import StockUnitView
from gpu_platform.cli.jobs import finish_job
from gpu_platform.cli.options import AsJson, Gpu, Memory, OnlySpec, OperationId, Spec, Url, with_options
from gpu_platform.cli.output import build_age, now
from gpu_platform.cli.request_files import new_operation_id, replayable
from gpu_platform.cli.resources import Columns, add_delete, connect, print_list
from gpu_platform.cli.wait import WaitOptions
from gpu_platform.client.calls import drop_none
from gpu_platform.client.wait import describe_reason

app = typer.Typer(help="Warm stock, which units are made from. For operators.", no_args_is_help=True)

COLUMNS: Columns[StockUnitView] = {
    "NAME": lambda unit: unit.name,
    "POOL": lambda unit: unit.pool,
    "SPEC": lambda unit: unit.spec_name,
    "STATE": lambda unit: unit.state,
    "NODE": lambda unit: unit.node_name,
    "AGE": lambda unit: build_age(unit.created_at, now()),
    "CLAIMED BY": lambda unit: unit.claimed_by,
    "REASON": lambda unit: describe_reason(unit) if unit.state == "waiting" else None,
}


class State(StrEnum):
    AVAILABLE = "available"
    WAITING = "waiting"
    CLAIMED = "claimed"


@app.command("list")
def list_stock(
    spec: OnlySpec = None,
    pool: Annotated[str | None, typer.Option(help="Only those of this pool.")] = None,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """List the stock."""
    with connect(url) as client:
        answer = client.stock.list(spec, pool, state.value if state else None)
    print_list(answer, COLUMNS, empty="there is no such stock; `gpu-platform stock seed` makes some", as_json=as_json)


@app.command()
@with_options
def seed(
    spec: Spec,
    replicas: Annotated[int, typer.Option(min=1, help="How many units to make, once.")],
    memory: Memory = None,
    gpu: Gpu = None,
    operation_id: OperationId = None,
    waiting: WaitOptions = WaitOptions(),  # noqa: B008 - a value
) -> None:
    """Make stock once. With --wait, until units can be made from it."""
    operation = operation_id or new_operation_id()
    request = drop_none(operationID=operation, specName=spec, replicas=replicas, memory=memory, gpu=gpu)
    with waiting.connect() as session:
        stock = session.client.stock
        with replayable(operation):
            answer = stock.seed(request)
        pool = answer.value.object_name
        wait = stock.wait_seeded.build(spec, pool, timeout=session.deadline)
        goes_on = f"the stock is made all the same: `gpu-platform stock list --pool {pool}` shows it"
        finish_job(session, answer, f"stock of {spec}", wait, goes_on)


add_delete(app, "Delete a stock unit that nobody has claimed.", lambda client: client.stock.delete)
