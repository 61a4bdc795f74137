"""`gpu-platform stock`: warm stock, for operators."""

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
    OnlySpec,
    OperationId,
    Spec,
    Timeout,
    Url,
    Wait,
    said,
)
from gpu_platform.cli.output import build_age, build_why, now, print_json, print_line, print_rows
from gpu_platform.cli.request_files import new_operation_id, replayable
from gpu_platform.cli.views import JobView
from gpu_platform.cli.wait import Deadline, judge_seeded, wait_for

app = typer.Typer(help="Warm stock, which units are made from. For operators.", no_args_is_help=True)


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
        stock = client.list_stock(spec, pool, state.value if state else None)
    if as_json:
        print_json(stock)
        return
    print_rows(
        ("NAME", "POOL", "SPEC", "STATE", "NODE", "AGE", "CLAIMED BY", "REASON"),
        (
            (
                unit["name"],
                unit.get("pool"),
                unit["specName"],
                unit["state"],
                unit.get("nodeName"),
                build_age(unit["createdAt"], now()),
                unit.get("claimedBy"),
                build_why(unit) if unit["state"] == "waiting" else None,
            )
            for unit in stock
        ),
        empty="there is no such stock; `gpu-platform stock seed` makes some",
    )


@app.command()
def seed(
    spec: Spec,
    replicas: Annotated[int, typer.Option(min=1, help="How many units to make, once.")],
    memory: Memory = None,
    gpu: Gpu = None,
    operation_id: OperationId = None,
    wait: Wait = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Make stock once. With --wait, until units can be made from it."""
    operation = operation_id or new_operation_id()
    request = said(operationID=operation, specName=spec, replicas=replicas, memory=memory, gpu=gpu)
    with connect(url) as client:
        deadline = Deadline(timeout)
        with replayable(operation):
            accepted = client.seed_stock(request)

        def wait_seeded(job: JobView) -> None:
            pool = job["objectName"]
            wait_for(
                f"stock of {spec}",
                lambda: client.list_stock(pool=pool),
                judge_seeded,
                deadline,
                goal="ready to be used",
                goes_on=f"the stock is made all the same: `gpu-platform stock list --pool {pool}` shows it",
            )

        finish_job(client, accepted, deadline if wait else None, wait_seeded, as_json=as_json)
    if wait and not as_json:
        print_line(f"stock of {spec} is ready after {deadline.elapsed_seconds():.1f} s")


@app.command()
def delete(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Delete a stock unit that nobody has claimed."""
    with connect(url) as client:
        client.delete_stock(name)
    if not as_json:
        print_line(f"{name} is being deleted")
