"""What is done to an object that a custom resource owns."""

from enum import StrEnum
from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from reconciler.child_diff import note_fields, plan_child
from reconciler.guarded_writes import CreateObject, DeleteObject, ReplaceObject


class Kind(StrEnum):
    SERVICE = "Service"


def make_service(port: int, **metadata: Any) -> Json:
    return {"metadata": {"name": "s", "labels": {}, "ownerReferences": [], **metadata}, "spec": {"port": port}}


def with_policy(service: Json) -> Json:
    return {**service, "spec": {**service["spec"], "policy": "Local"}}


WANTED = make_service(80)
NOTED = note_fields(WANTED)
THERE = note_fields(make_service(80, resourceVersion="7"))
OTHER = note_fields(make_service(81, resourceVersion="7"))
DEFAULTED = with_policy(THERE)
LARGER = note_fields(with_policy(make_service(80, resourceVersion="7")))
LEAVING = make_service(80, deletionTimestamp="2030-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("desired", "live", "writes"),
    [
        pytest.param(None, None, (), id="not wanted, not there"),
        pytest.param(None, LEAVING, (), id="not wanted, on its way out"),
        pytest.param(None, THERE, (DeleteObject(Kind.SERVICE, THERE),), id="not wanted, there"),
        pytest.param(WANTED, None, (CreateObject(Kind.SERVICE, NOTED),), id="wanted, not there"),
        pytest.param(WANTED, THERE, (), id="wanted, as desired"),
        pytest.param(WANTED, DEFAULTED, (), id="wanted, as desired, with a default"),
        pytest.param(WANTED, LARGER, (ReplaceObject(Kind.SERVICE, THERE),), id="wanted, with a field that we set once"),
        pytest.param(WANTED, OTHER, (ReplaceObject(Kind.SERVICE, THERE),), id="wanted, as somebody else wants it"),
    ],
)
def test_an_object_becomes_what_is_wanted(desired: Json | None, live: Json | None, writes: tuple[object, ...]) -> None:
    assert plan_child(Kind.SERVICE, desired, live) == writes
