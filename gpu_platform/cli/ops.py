"""`gpu-platform ops`: the jobs that operators started."""

from typing import Annotated

import typer

from gpu_platform.cli.connection import connect
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.output import build_age, build_details, now, print_json, print_rows, print_table

app = typer.Typer(help="Jobs: what operators asked for, and how far it came.", no_args_is_help=True)


@app.command("list")
def list_jobs(as_json: AsJson = False, url: Url = None) -> None:
    """List the jobs, newest first."""
    with connect(url) as client:
        jobs = client.list_jobs()
    if as_json:
        print_json(jobs)
        return
    print_rows(
        ("OPERATION", "TYPE", "STATUS", "OBJECT", "AGE", "ERROR"),
        (
            (
                job["operationID"],
                job["type"],
                job["status"],
                job["objectName"],
                build_age(job["createdAt"], now()),
                job.get("error"),
            )
            for job in jobs
        ),
        empty="there are no jobs",
    )


@app.command()
def get(
    operation_id: Annotated[str, typer.Argument(metavar="ID", help="The operation that the job was started with.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show a job."""
    with connect(url) as client:
        job = client.get_job(operation_id)
    if as_json:
        print_json(job)
        return
    fields = {
        "operation": job["operationID"],
        "type": job["type"],
        "status": job["status"],
        "error": job.get("error"),
        "object": f"{job['objectNamespace']}/{job['objectName']}",
        "age": build_age(job["createdAt"], now()),
        "changed": f"{build_age(job['updatedAt'], now())} ago",
    }
    print_table(build_details(fields))
