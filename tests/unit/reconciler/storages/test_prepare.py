"""The table of `plan_prepare`, row by row."""

from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import Hold, unit_holder
from gpu_platform.domain.storages import Prepare, PreparePhase, PrepareStatus, prepare_digest
from reconciler.storages.observe import Observed
from reconciler.storages.prepare import PreparePlan, is_copying, plan_prepare
from tests.support.builders import NOW, make_pod, make_storage
from tests.unit.reconciler.storages.observed import make_observed

FETCH = {"fromImage": "example/fetch", "command": ["fetch"], "args": []}
COPY = {"fromStorageName": "base", "command": [], "args": []}
DIGEST = prepare_digest(Prepare.model_validate(FETCH), None)
AGAIN = prepare_digest(Prepare.model_validate(FETCH), "again")


def storage(prepare: Json, nonce: str | None = None) -> Json:
    made = make_storage(prepare=prepare)
    if nonce:
        made["metadata"]["annotations"] = {names.ANNOTATION_RECOVERY_NONCE: nonce}
    return made


def observe(item: Json, **changes: Any) -> Observed:
    return make_observed(item, **{"claim": {"metadata": {"name": "weights"}}, **changes})


def job(digest: str = DIGEST, condition: str | None = None, *, suspend: bool = False, **status: Any) -> Json:
    conditions = [{"type": condition, "status": "True", "message": "it ended"}] if condition else []
    return {
        "metadata": {"name": names.prepare_job_name("weights", digest), "uid": "j"},
        "spec": {"suspend": suspend},
        "status": {"conditions": conditions, **status},
    }


def prepared_claim(digest: str) -> Json:
    return {"metadata": {"name": "weights", "annotations": {names.ANNOTATION_PREPARED_DIGEST: digest}}}


def plan(observed: Observed, old: PrepareStatus | None = None, *, has_volume: bool = True) -> PreparePlan:
    assert observed.spec is not None
    return plan_prepare(observed, observed.spec.prepare, old or PrepareStatus(), has_volume=has_volume)


def outcome(result: PreparePlan) -> tuple[str, str]:
    return result.status.phase, result.status.recovery_phase


def known(phase: PreparePhase, digest: str = DIGEST) -> PrepareStatus:
    return PrepareStatus(phase=phase, observed_digest=digest)


def test_without_a_wish_nothing_is_prepared() -> None:
    result = plan(observe(make_storage()))
    assert outcome(result) == ("NotRequested", "None")
    assert not result.starts_job


def test_a_job_is_made_once_there_is_a_volume() -> None:
    assert plan(observe(storage(FETCH)), has_volume=False).starts_job is False
    result = plan(observe(storage(FETCH)))
    assert result.starts_job
    assert outcome(result) == ("Pending", "None")
    assert (result.status.observed_digest, result.status.job_name) == (DIGEST, f"prep-weights-{DIGEST[:10]}")


@pytest.mark.parametrize(
    ("live", "phase"),
    [
        (job(), "Pending"),
        (job(ready=1), "Running"),
        (job(condition="Complete"), "Succeeded"),
        (job(condition="Failed"), "Failed"),
    ],
)
def test_the_job_is_mirrored(live: Json, phase: str) -> None:
    result = plan(observe(storage(FETCH), jobs=(live,)))
    assert result.status.phase == phase
    assert not result.starts_job
    assert result.marks_claim is (phase == "Succeeded")


def test_a_pod_that_is_not_made_is_told_apart_from_one_that_starts() -> None:
    pod = make_pod(labels={names.LABEL_STORAGE_PREPARE: DIGEST[:10]})
    for pods, words in (((), "its Job has no pod yet"), ((pod,), "its pod is starting")):
        message = plan(observe(storage(FETCH), jobs=(job(),), pods=pods)).status.message or ""
        assert words in message
        assert "quota" not in message


def test_a_preparation_on_a_node_that_is_away_names_the_node() -> None:
    pod = make_pod(labels={names.LABEL_STORAGE_PREPARE: DIGEST[:10]})
    away = {"sim-h100-0": "NodeStatusUnknown: gone"}
    for live, phase in ((job(), "Pending"), (job(ready=1), "Running")):
        result = plan(observe(storage(FETCH), jobs=(live,), pods=(pod,), away=away))
        assert (result.status.phase, result.status.message) == (
            phase,
            "its pod is on node sim-h100-0, which is not Ready (NodeStatusUnknown: gone)",
        )


def test_a_failure_is_told_in_the_words_of_the_pod() -> None:
    pod = make_pod(labels={names.LABEL_STORAGE_PREPARE: DIGEST[:10]})
    ended = {"exitCode": 3, "reason": "Error", "message": "no space"}
    pod["status"] = {"containerStatuses": [{"name": "prepare", "state": {"terminated": ended}}]}
    result = plan(observe(storage(FETCH), jobs=(job(condition="Failed"),), pods=(pod,)))
    assert outcome(result) == ("Failed", "Required")
    assert "no space" in (result.status.message or "")


@pytest.mark.parametrize("phase", [PreparePhase.SUCCEEDED, PreparePhase.FAILED])
def test_an_end_is_remembered_when_its_job_is_gone(phase: PreparePhase) -> None:
    result = plan(observe(storage(FETCH)), known(phase))
    assert result.status.phase is phase
    assert not result.starts_job


def test_the_claim_remembers_longer_than_the_status() -> None:
    """The process died between the two writes; or the storage is a new one on data that were kept."""
    for digest in (DIGEST, AGAIN, "other"):
        result = plan(observe(storage(FETCH), claim=prepared_claim(digest)))
        assert result.status.phase == "Succeeded"
        assert not result.starts_job


def test_the_claim_forgets_an_earlier_preparation_before_the_next_one_writes_over_it() -> None:
    """Or one that fails would count as the earlier one, once its nonce is gone: on a retained claim, for instance."""
    marked = plan(observe(storage(FETCH, "again"), claim=prepared_claim(DIGEST)))
    assert (marked.status.phase, marked.unmarks_claim, marked.starts_job) == ("Pending", True, False)
    bare = plan(observe(storage(FETCH, "again")), marked.status)
    assert (bare.unmarks_claim, bare.starts_job) == (False, True)


def test_the_claim_forgets_nothing_while_the_next_preparation_cannot_begin() -> None:
    marked = prepared_claim(DIGEST)
    for waiting in (
        observe(storage(FETCH, "again"), claim=marked, jobs=(job(),)),
        observe(storage(COPY, "again"), claim=marked, source=source("Pending")),
        observe(storage(COPY, "again"), claim=marked, source=source()),
    ):
        assert not plan(waiting).unmarks_claim
    assert plan(observe(storage(COPY, "again"), claim=marked, source=source(held_by="storage/weights"))).unmarks_claim


@pytest.mark.parametrize(
    ("jobs", "outcomes"),
    [
        ((), ("Pending", "Running")),
        ((job(AGAIN, ready=1),), ("Running", "Running")),
        ((job(AGAIN, "Complete"),), ("Succeeded", "Succeeded")),
        ((job(AGAIN, "Failed"),), ("Failed", "Required")),
    ],
)
def test_a_recovery_is_another_preparation(jobs: tuple[Json, ...], outcomes: tuple[str, str]) -> None:
    result = plan(observe(storage(FETCH, "again"), jobs=jobs), known(PreparePhase.FAILED))
    assert outcome(result) == outcomes
    assert result.starts_job is not bool(jobs)


def test_the_earlier_job_goes_before_the_next_one_comes() -> None:
    result = plan(observe(storage(FETCH, "again"), jobs=(job(condition="Failed"),)), known(PreparePhase.FAILED))
    assert result.old_jobs == (job(condition="Failed"),)
    assert not result.starts_job


def test_a_preparation_whose_job_is_deleted_has_failed_and_is_not_begun_again() -> None:
    pod = make_pod(labels={names.LABEL_STORAGE_PREPARE: DIGEST[:10]})
    leaving = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "now"}, "status": {"phase": "Running"}}

    ending = plan(observe(storage(FETCH), pods=(leaving,)), known(PreparePhase.RUNNING))
    assert (ending.status.phase, ending.starts_job) == ("Running", False)
    ended = {**leaving, "status": {"phase": "Failed"}}
    for pods in ((ended,), ()):
        over = plan(observe(storage(FETCH), pods=pods), known(PreparePhase.RUNNING))
        assert (outcome(over), over.starts_job) == (("Failed", "Required"), False)
        assert "was deleted" in (over.status.message or "")
    assert plan(observe(storage(FETCH, "again")), over.status).starts_job


def test_a_job_that_never_ran_is_made_again() -> None:
    assert plan(observe(storage(FETCH)), known(PreparePhase.PENDING)).starts_job


def test_a_job_runs_once_it_is_recorded_that_it_has_begun() -> None:
    """Whoever dies before leaves a Job that does nothing; whoever dies after, a record of it."""
    waiting = job(suspend=True)
    seen = plan(observe(storage(FETCH), jobs=(waiting,)), known(PreparePhase.PENDING))
    assert (seen.status.phase, seen.status.begun, seen.resumes_job) == ("Pending", True, None)
    recorded = plan(observe(storage(FETCH), jobs=(waiting,)), seen.status)
    assert (recorded.status, recorded.resumes_job) == (seen.status, waiting)
    assert plan(observe(storage(FETCH), jobs=(job(),)), seen.status).resumes_job is None
    leaving = {**waiting, "metadata": {**waiting["metadata"], "deletionTimestamp": "now"}}
    assert plan(observe(storage(FETCH), jobs=(leaving,)), seen.status).resumes_job is None


def test_a_preparation_that_has_begun_is_not_begun_again_by_itself() -> None:
    """Its Job ran and ended unseen, and somebody deleted it, or its day was over."""
    begun = plan(observe(storage(FETCH), jobs=(job(suspend=True),))).status
    lost = plan(observe(storage(FETCH)), begun)
    assert (outcome(lost), lost.starts_job) == (("Failed", "Required"), False)
    assert plan(observe(storage(FETCH, "again")), lost.status).starts_job


def test_the_pods_of_an_earlier_job_end_before_the_next_one_comes() -> None:
    running = make_pod(labels={names.LABEL_STORAGE_PREPARE: DIGEST[:10]})
    running["status"] = {"phase": "Running"}
    ended = {**running, "status": {"phase": "Failed"}}
    failed = known(PreparePhase.FAILED)
    assert not plan(observe(storage(FETCH, "again"), pods=(running,)), failed).starts_job
    assert plan(observe(storage(FETCH, "again"), pods=(ended,)), failed).starts_job


def test_what_a_unit_works_with_is_not_prepared_again() -> None:
    hold = Hold(unit_holder("train"), NOW, "uid-train")
    result = plan(observe(storage(FETCH, "again"), hold=hold), known(PreparePhase.SUCCEEDED))
    assert not result.starts_job
    assert (result.status.phase, result.status.observed_digest) == ("Succeeded", DIGEST)
    assert "unit/train" in (result.status.message or "")
    waiting = plan(observe(storage(FETCH, "again"), hold=hold), known(PreparePhase.FAILED))
    assert waiting.starts_job


def source(phase: str = "Ready", held_by: str | None = None, **metadata: Any) -> Json:
    base = make_storage("base")
    base["metadata"] |= metadata
    if held_by:
        base["metadata"]["annotations"] = {names.ANNOTATION_MOUNTED_BY: held_by}
    return {**base, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "not there"),
        (source(deletionTimestamp="now"), "not there"),
        (source("Pending"), "is Ready"),
        (source(held_by="unit/train"), "until unit/train no longer uses"),
        (source(held_by="storage/other"), "until storage/other no longer uses"),
    ],
)
def test_a_copy_waits_for_its_source(found: Json | None, words: str) -> None:
    result = plan(observe(storage(COPY), source=found))
    assert result.status.phase == "Pending"
    assert words in (result.status.message or "")
    assert (result.starts_job, result.takes_source) == (False, False)


def test_a_copy_takes_its_source_before_it_begins() -> None:
    free = plan(observe(storage(COPY), source=source()))
    assert (free.starts_job, free.takes_source) == (False, True)
    held = plan(observe(storage(COPY), source=source(held_by="storage/weights")))
    assert (held.starts_job, held.takes_source) == (True, False)


def test_a_source_is_needed_until_the_copy_has_ended() -> None:
    digest = prepare_digest(Prepare.model_validate(COPY), None)
    target = storage(COPY)
    assert is_copying(target, "base")
    assert not is_copying(target, "other")
    assert not is_copying({**target, "metadata": {**target["metadata"], "deletionTimestamp": "now"}}, "base")
    for phase, needed in (("Running", True), ("Succeeded", False), ("Failed", False)):
        status = {"prepare": {"phase": phase, "observedDigest": digest}}
        assert is_copying({**target, "status": status}, "base") is needed
    stale = {"prepare": {"phase": "Failed", "observedDigest": "other"}}
    assert is_copying({**target, "status": stale}, "base")


COPIED = prepare_digest(Prepare.model_validate(COPY), None)


def test_the_job_of_a_copy_that_succeeded_goes_once_that_is_recorded() -> None:
    """Its pod would hold up the deletion of the source, and it has written nothing."""
    ended = job(COPIED, "Complete")
    first = plan(observe(storage(COPY), jobs=(ended,), source=source()))
    assert (first.status.phase, first.old_jobs) == ("Succeeded", ())
    assert plan(observe(storage(COPY), jobs=(ended,), source=source()), first.status).old_jobs == (ended,)


def test_the_job_of_a_copy_that_failed_stays_for_its_words_until_its_source_goes() -> None:
    ended = job(COPIED, "Failed")
    first = plan(observe(storage(COPY), jobs=(ended,), source=source()))
    assert (first.status.phase, first.old_jobs) == ("Failed", ())
    for found, gone in ((source(), ()), (source(deletionTimestamp="now"), (ended,)), (None, (ended,))):
        assert plan(observe(storage(COPY), jobs=(ended,), source=found), first.status).old_jobs == gone
