"""A change of a pool, and when it is written."""

import json

import pytest

from gpu_platform.api_models.stock import ChangeStockPool
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from platform_api.stock.service import build_changed, view_pool
from tests.support.builders import make_pool


def accepted(pool: Json) -> Json:
    """The pool as the API leaves it."""
    other = {"replicas": 9_999}
    changed = build_changed(pool | {"spec": pool["spec"] | other}, ChangeStockPool(replicas=pool["spec"]["replicas"]))
    assert changed is not None
    return changed


def test_a_change_writes_the_spec_and_what_was_accepted_together() -> None:
    changed = build_changed(make_pool(2), ChangeStockPool(replicas=5))

    assert changed is not None
    text = changed["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
    assert json.loads(text) == changed["spec"] == {"specName": "g1.1", "replicas": 5, "replenish": "Always"}
    assert changed["metadata"]["resourceVersion"] == "3"


def test_what_is_not_said_stays() -> None:
    changed = build_changed(make_pool(2, image="a", replenish="Never"), ChangeStockPool(image="b"))

    assert changed is not None
    assert changed["spec"] == {"specName": "g1.1", "replicas": 2, "replenish": "Never", "image": "b"}


@pytest.mark.parametrize(
    "change", [ChangeStockPool(), ChangeStockPool(replicas=2), ChangeStockPool(replenish="Always")]
)
def test_no_change_is_no_write(change: ChangeStockPool) -> None:
    assert build_changed(make_pool(2), change) is None
    assert build_changed(accepted(make_pool(2)), change) is None


def test_what_somebody_edited_is_accepted_when_it_is_asked_for() -> None:
    edited = accepted(make_pool(2))
    edited["spec"] = edited["spec"] | {"replicas": 4}

    changed = build_changed(edited, ChangeStockPool(replicas=4))

    assert changed is not None
    assert json.loads(changed["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC])["replicas"] == 4


@pytest.mark.parametrize(
    ("metadata", "status", "phase"),
    [
        ({}, {}, "Progressing"),
        ({}, {"phase": "Ready"}, "Ready"),
        ({"deletionTimestamp": "2030-01-01T12:00:00Z"}, {"phase": "Ready"}, "Terminating"),
    ],
)
def test_a_pool_without_a_status_progresses_and_one_on_its_way_out_terminates(
    metadata: Json, status: Json, phase: str
) -> None:
    pool = make_pool(2, status=status)
    pool["metadata"] |= {"creationTimestamp": "2030-01-01T11:00:00Z"} | metadata

    assert view_pool(pool).phase == phase
