"""The end of a command that an operator's job carries out."""

from collections.abc import Callable

from gpu_platform.cli.client import PlatformClient
from gpu_platform.cli.output import print_json, print_line
from gpu_platform.cli.session import Accepted
from gpu_platform.cli.views import JobView
from gpu_platform.cli.wait import Deadline, Outcome, Verdict, judge_job, wait_for


def finish_job(
    client: PlatformClient,
    accepted: Accepted[JobView],
    deadline: Deadline | None,
    wait_for_object: Callable[[JobView], None],
    *,
    as_json: bool,
) -> None:
    """Waits, where that is wanted, for the job and for what it makes, and says how the job is."""
    job = accepted.view
    if deadline:
        job = _wait_done(client, job, deadline)
        wait_for_object(job)
    if as_json:
        print_json(job)
    elif not deadline:
        again = "" if accepted.is_new else ", accepted before"
        print_line(f"job {job['operationID']}: {job['status']}{again} (pool {job['objectName']})")
        print_line(f"  follow it:  gpu-platform ops get {job['operationID']}")


def _wait_done(client: PlatformClient, job: JobView, deadline: Deadline) -> JobView:
    operation_id = job["operationID"]

    def judge(seen: JobView | None) -> Verdict:
        return judge_job(seen) if seen else Verdict(Outcome.FAILED, "the platform does not know it")

    goes_on = f"the job goes on: `gpu-platform ops get {operation_id}` shows it"
    done = wait_for(
        f"job {operation_id}", lambda: client.find_job(operation_id), judge, deadline, goal="done", goes_on=goes_on
    )
    return done or job
