"""How far the preparation of a storage is, and what it needs next. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from gpu_platform.domain import names
from gpu_platform.domain.conditions import condition_of, is_true
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, labels_of
from gpu_platform.domain.mount_holds import Holder, HolderKind, hold_of
from gpu_platform.domain.storages import (
    GPUStorageStatus,
    Prepare,
    PreparePhase,
    PrepareStatus,
    RecoveryPhase,
    StoragePhase,
    prepare_digest,
)
from reconciler.storages.observe import Observed
from reconciler.units.pod_status import describe_wait, find_away, find_failure, find_unschedulable, is_finished

ENDED = (PreparePhase.SUCCEEDED, PreparePhase.FAILED)

BEING_MADE = "its Job is being made"
NO_POD = "its Job has no pod yet; if that lasts, the storage's events say why"


@dataclass(frozen=True)
class PreparePlan:
    status: PrepareStatus
    digest: str | None = None
    starts_job: bool = False
    resumes_job: Json | None = None
    """The Job that waits to be let run."""

    takes_source: bool = False
    marks_claim: bool = False
    """The claim is to remember that it was prepared, longer than the storage does."""

    unmarks_claim: bool = False
    """The claim is to forget it, because the next preparation writes over it, and may fail."""

    old_jobs: tuple[Json, ...] = ()
    """Of earlier preparations, and of a copy whose ended pod would hold up the deletion of its source."""


def plan_prepare(observed: Observed, prepare: Prepare | None, old: PrepareStatus, *, has_volume: bool) -> PreparePlan:
    """A preparation is known by its digest: what is asked for, and the nonce of the last recovery.

    Its Job is made suspended, and let run once the status says that it has begun. So one that is gone has never run, or
    is known to have begun: whoever dies in between loses no preparation, and repeats none.

    | what is known of this digest                     | then                                                    |
    | ------------------------------------------------ | ------------------------------------------------------- |
    | nothing was asked for                            | NotRequested                                            |
    | it succeeded, as the status or the claim say     | Succeeded; the Job of a copy goes                       |
    | no recovery, and the claim was prepared before   | Succeeded: data that were kept are not written over     |
    | it failed, as the status says                    | Failed, recovery Required; the Job is not made again,   |
    |                                                  | and that of a copy goes when its source does            |
    | new, and a unit mounts what an earlier one made  | as the earlier one; it waits for the unit               |
    | its Job has ended                                | Succeeded, and the claim remembers it; or Failed        |
    | its Job is there, suspended                      | Pending, begun                                          |
    | its Job is there, suspended, and it has begun    | Pending; let the Job run                                |
    | its Job is there                                 | Running, or Pending with what it waits for              |
    | it has begun, and its Job is gone                | as before while a pod of it lives, then Failed          |
    | no Job, and no volume yet                        | Pending                                                 |
    | its Job could be made, the claim was prepared    | Pending; the claim forgets that first                   |
    | no Job, from an image                            | make the Job                                            |
    | no Job, the source is missing, not Ready, in use | Pending, and says so                                    |
    | no Job, the source is free                       | take the source                                         |
    | no Job, the source is held for this              | make the Job                                            |
    """
    if prepare is None:
        return PreparePlan(PrepareStatus(), old_jobs=observed.jobs)
    nonce = annotations_of(observed.storage).get(names.ANNOTATION_RECOVERY_NONCE)
    digest = prepare_digest(prepare, nonce)
    job_name = names.prepare_job_name(observed.storage["metadata"]["name"], digest)
    job = next((job for job in observed.jobs if job["metadata"]["name"] == job_name), None)
    others = tuple(other for other in observed.jobs if other is not job)
    has_begun = old.observed_digest == digest and (old.begun or old.phase is PreparePhase.RUNNING)

    def status(phase: PreparePhase, message: str | None = None) -> PrepareStatus:
        return PrepareStatus(
            phase=phase,
            job_name=job_name,
            observed_digest=digest,
            recovery_phase=_recovery_phase(phase, nonce),
            message=message,
            begun=has_begun or job is not None,
        )

    is_copy = prepare.from_storage_name is not None
    if _is_done(observed.claim, old, digest, nonce):
        return PreparePlan(status(PreparePhase.SUCCEEDED), digest, old_jobs=observed.jobs if is_copy else others)
    if old.observed_digest == digest and old.phase is PreparePhase.FAILED:
        # Its words are kept, unless the source is to go: its ended pod would hold up the source's claim.
        blocks_source = is_copy and not _is_there(observed.source)
        return PreparePlan(old, digest, old_jobs=observed.jobs if blocks_source else others)
    if old.phase is PreparePhase.SUCCEEDED and observed.hold is not None:
        waits = f"another preparation was asked for; it waits until {observed.hold.holder} no longer uses the storage"
        return PreparePlan(old.model_copy(update={"message": waits}), digest)
    if job is not None:
        pods = [pod for pod in observed.pods if labels_of(pod).get(names.LABEL_STORAGE_PREPARE) == digest[:10]]
        phase, message = _judge_job(job, pods, observed.away)
        return PreparePlan(
            status(phase, message),
            digest,
            resumes_job=job if has_begun and _is_suspended(job) else None,
            marks_claim=phase is PreparePhase.SUCCEEDED,
            old_jobs=others,
        )
    if has_begun:
        # How it ended nobody knows, and what it began is not begun again before somebody asks for it.
        is_over = not _has_living_pods(observed)
        lost = status(PreparePhase.FAILED, "its Job was deleted before it was seen to end")
        return PreparePlan(lost if is_over else old, digest, old_jobs=others)
    if not has_volume:
        return PreparePlan(status(PreparePhase.PENDING, "waits for the volume"), digest)
    if others or _has_living_pods(observed):
        # Two must not write at once.
        waits = "waits until the earlier preparation is gone"
        return PreparePlan(status(PreparePhase.PENDING, waits), digest, old_jobs=others)
    return _plan_start(observed, prepare, digest, status)


def _plan_start(
    observed: Observed, prepare: Prepare, digest: str, status: Callable[[PreparePhase, str], PrepareStatus]
) -> PreparePlan:
    problem, is_held = None, True
    if prepare.from_storage_name is not None:
        problem, is_held = _judge_source(observed, prepare.from_storage_name)
    if problem is not None:
        return PreparePlan(status(PreparePhase.PENDING, problem), digest)
    if not is_held:
        taking = status(PreparePhase.PENDING, f"takes storage {prepare.from_storage_name}")
        return PreparePlan(taking, digest, takes_source=True)
    is_marked = _mark_of(observed.claim) is not None
    begins = status(PreparePhase.PENDING, BEING_MADE)
    return PreparePlan(begins, digest, starts_job=not is_marked, unmarks_claim=is_marked)


def is_copying(target: Json, source: str) -> bool:
    """Whether this storage, read from the API server, still needs the other one to be filled from."""
    prepare = Prepare.model_validate((target.get("spec") or {}).get("prepare") or {})
    if "deletionTimestamp" in target["metadata"] or prepare.from_storage_name != source:
        return False
    digest = prepare_digest(prepare, annotations_of(target).get(names.ANNOTATION_RECOVERY_NONCE))
    known = GPUStorageStatus.of(target).prepare
    return not (known.observed_digest == digest and known.phase in ENDED)


def _is_done(claim: Json | None, old: PrepareStatus, digest: str, nonce: str | None) -> bool:
    if old.observed_digest == digest and old.phase is PreparePhase.SUCCEEDED:
        return True
    mark = _mark_of(claim)
    return mark == digest or (mark is not None and nonce is None)


def _mark_of(claim: Json | None) -> str | None:
    """The preparation that the claim remembers."""
    return annotations_of(claim).get(names.ANNOTATION_PREPARED_DIGEST) if claim is not None else None


def _has_living_pods(observed: Observed) -> bool:
    """The pods of a Job that is gone end after it."""
    return any(names.LABEL_STORAGE_PREPARE in labels_of(pod) and not is_finished(pod) for pod in observed.pods)


def _recovery_phase(phase: PreparePhase, nonce: str | None) -> RecoveryPhase:
    if phase is PreparePhase.FAILED:
        return RecoveryPhase.REQUIRED
    if nonce is None:
        return RecoveryPhase.NONE
    return RecoveryPhase.SUCCEEDED if phase is PreparePhase.SUCCEEDED else RecoveryPhase.RUNNING


def _is_suspended(job: Json) -> bool:
    return bool(job["spec"].get("suspend")) and "deletionTimestamp" not in job["metadata"]


def _judge_job(job: Json, pods: Sequence[Json], away: Mapping[str, str]) -> tuple[PreparePhase, str | None]:
    if is_true(job, "Complete"):
        return PreparePhase.SUCCEEDED, None
    failure = find_failure(pods)
    if is_true(job, "Failed"):
        return PreparePhase.FAILED, failure or _failure_of(job)
    if (job.get("status") or {}).get("ready") or any(pod.get("status", {}).get("phase") == "Running" for pod in pods):
        return PreparePhase.RUNNING, find_away(pods, away)
    if _is_suspended(job):
        return PreparePhase.PENDING, BEING_MADE
    if not pods:
        # A Job has no condition that says why; a quota that is used up is one reason of several.
        return PreparePhase.PENDING, NO_POD
    return PreparePhase.PENDING, failure or find_unschedulable(pods) or describe_wait(pods, away, None)


def _failure_of(job: Json) -> str:
    condition = condition_of(job, "Failed")
    return "its Job failed" if condition is None else str(condition.get("message"))


def _is_there(source: Json | None) -> TypeGuard[Json]:
    return source is not None and "deletionTimestamp" not in source["metadata"]


def _judge_source(observed: Observed, name: str) -> tuple[str | None, bool]:
    """What stands against copying it now, and whether it is held for this storage."""
    source = observed.source
    if not _is_there(source):
        return f"waits for storage {name}, which is not there", False
    hold = hold_of(source)
    if hold is not None and hold.holder == Holder(HolderKind.STORAGE, observed.storage["metadata"]["name"]):
        return None, True
    if hold is not None:
        return f"waits until {hold.holder} no longer uses storage {name}", False
    if GPUStorageStatus.of(source).phase is not StoragePhase.READY:
        return f"waits until storage {name} is Ready", False
    return None, False
