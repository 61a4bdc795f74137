"""When drift that is over was corrected, and when another request has settled it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.drift import Difference
from gpu_platform.domain.stack_plan import Action
from gpu_platform.domain.stacks import StackAddress, StackKind
from platform_api.stacks.drift import Drift, is_corrected

ADDRESS = StackAddress(StackKind.GPU_STORAGE, "default", "data")
GREW = (Difference("spec.size", "1Gi", "2Gi"),)
ACCEPTED = '{"size":"1Gi"}'


def item(accepted: str = ACCEPTED, operation: str = "op-1", **metadata: Any) -> dict[str, Any]:
    annotations = {names.ANNOTATION_ACCEPTED_SPEC: accepted, names.ANNOTATION_OPERATION_ID: operation}
    return {"metadata": {"name": "data", "annotations": annotations, **metadata}}


def drift(**fields: Any) -> Drift:
    return Drift(ADDRESS, Action.REVERT, datetime(2026, 11, 18, tzinfo=UTC), **fields)


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        (drift(differences=GREW, accepted_spec=ACCEPTED), item(), True),
        (drift(differences=GREW, accepted_spec=ACCEPTED), item('{"size":"2Gi"}'), False),
        (drift(differences=GREW, accepted_spec=ACCEPTED), item(deletionTimestamp="2026-11-18T00:00:00Z"), False),
        (drift(lost="op-1"), item(), True),
        (drift(lost="op-1"), item(operation="op-2"), False),
        (drift(), item(), False),
    ],
)
def test_only_what_was_put_back_counts_as_corrected(known: Drift, found: dict[str, Any], expected: bool) -> None:
    assert is_corrected(known, found) is expected
