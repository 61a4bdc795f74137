"""The rows of `plan_operation` about previews."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import PREVIEW_PATIENCE, PREVIEW_RETENTION, OperationPhase, OperationStatus
from reconciler.operations.observe import Observed
from reconciler.operations.plan import RemoveOperation
from tests.support.builders import NOW
from tests.unit.reconciler.operations.records import RUNNING, SECOND, make_record, outcome, plan, status_after


def preview(age: timedelta = PREVIEW_PATIENCE, **status: Any) -> Observed:
    return Observed(make_record("PreviewUnit", {"generation": 1}, uid="uid-demo", age=age, status=status))


@pytest.mark.parametrize("status", [{}, RUNNING])
def test_a_preview_is_left_to_a_stack_worker(status: Json) -> None:
    young = plan(preview(PREVIEW_PATIENCE - SECOND, **status))
    assert (young.step, young.wait) == (None, SECOND)


@pytest.mark.parametrize(
    ("status", "words"), [({}, "does `gpu-platform stack-worker` run"), (RUNNING, "a stack worker began it")]
)
def test_a_preview_that_nobody_finished_fails_and_says_what_to_look_at(status: Json, words: str) -> None:
    assert outcome(preview(**status)) == (OperationPhase.FAILED, "NoWorker")
    ended = status_after(preview(**status))
    assert words in (ended.message or "")
    assert ended.expires_at == NOW + PREVIEW_RETENTION


def test_a_preview_at_its_end_is_kept_for_an_hour_whatever_becomes_of_its_unit() -> None:
    ended: Json = {"phase": "Succeeded", "finishedAt": "2030-01-01T12:00:00Z", "result": {"changes": {"same": 1}}}
    kept = status_after(replace(preview(**ended), object_exists=True))
    assert kept == OperationStatus.model_validate({**ended, "expiresAt": NOW + PREVIEW_RETENTION})
    waiting = plan(preview(**ended, expiresAt=NOW + SECOND))
    assert (waiting.step, waiting.wait) == (None, SECOND)
    assert plan(preview(**ended, expiresAt=NOW)).step == RemoveOperation()
