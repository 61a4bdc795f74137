"""`gpu-platform ops`: the jobs that operators started; and the end of a command that such a job carries out."""

from typing import Annotated, Any

import typer

from gpu_platform.api_models.stock import JobView
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.output import build_age, build_details, now, print_answer, print_json, print_line, print_table
from gpu_platform.cli.resources import Columns, connect, print_list
from gpu_platform.cli.wait import Session, wait_for
from gpu_platform.client import Answer
from gpu_platform.client.calls import Operation

app = typer.Typer(help="Jobs: what operators asked for, and how far it came.", no_args_is_help=True)

COLUMNS: Columns[JobView] = {
    "OPERATION": lambda job: job.operation_id,
    "TYPE": lambda job: job.type,
    "STATUS": lambda job: job.status,
    "OBJECT": lambda job: job.object_name,
    "AGE": lambda job: build_age(job.created_at, now()),
    "ERROR": lambda job: job.error,
}


@app.command("list")
def list_jobs(as_json: AsJson = False, url: Url = None) -> None:
    """List the jobs, newest first."""
    with connect(url) as client:
        answer = client.jobs.list()
    print_list(answer, COLUMNS, empty="there are no jobs", as_json=as_json)


@app.command()
def get(
    operation_id: Annotated[str, typer.Argument(metavar="ID", help="The operation that the job was started with.")],
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Show a job."""
    with connect(url) as client:
        answer = client.jobs.get(operation_id)
    print_answer(answer, _print_job, as_json=as_json)


def _print_job(job: JobView) -> None:
    fields = {
        "operation": job.operation_id,
        "type": job.type,
        "status": job.status,
        "error": job.error,
        "object": f"{job.object_namespace}/{job.object_name}",
        "age": build_age(job.created_at, now()),
        "changed": f"{build_age(job.updated_at, now())} ago",
    }
    print_table(build_details(fields))


def finish_job(session: Session, answer: Answer[JobView], made: str, wait: Operation[Any], goes_on: str) -> None:
    """Waits, where that is wanted, for the job and then for what it makes, and says how that is."""
    job = answer.value
    if session.waits:
        job_goes_on = f"the job goes on: `gpu-platform ops get {job.operation_id}` shows it"
        wait_job = session.client.jobs.wait.build(job.operation_id, timeout=session.deadline)
        answer = wait_for(session.client, wait_job, job_goes_on)
        wait_for(session.client, wait, goes_on)
    if session.as_json:
        print_json(answer.document)
    elif session.waits:
        print_line(f"{made} is ready after {session.deadline.elapsed_seconds():.1f} s")
    else:
        again = "" if answer.is_new else ", accepted before"
        print_line(f"job {job.operation_id}: {job.status}{again} (pool {job.object_name})")
        print_line(f"  follow it:  gpu-platform ops get {job.operation_id}")
