"""A claim that a dead try left is the one that the next try uses; nobody frees it under the unit that stands on it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import claim_holder_of
from gpu_platform.domain.units import GPUUnitSpec, source_annotations
from gpu_platform.kube import ConflictError, KubeClient, NotFoundError
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.store.unit_acquisition import Taken, given_back_unless_written
from providers.cluster.kinds import KINDS
from providers.cluster.lifecycle import claim_for, claim_mark, claim_stock
from providers.cluster.objects import Wanted
from providers.cluster.resources import GPU_UNIT

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
HOLDER = "runtime-instance/train"
WANTED = Wanted(
    KINDS[GPU_UNIT], "runtime-instance", "train", GPUUnitSpec(spec_name="g1.1"), "op-1", request_hash=None, owner=None
)


def stock(name: str, holder: str | None = None, mark: str = "", **metadata: Any) -> Json:
    state = names.STOCK_CLAIMED if holder else names.STOCK_FREE
    claim = {names.ANNOTATION_CLAIMED_BY: holder, names.ANNOTATION_OPERATION_ID: mark} if holder else {}
    return {
        "metadata": {
            "name": name,
            "namespace": names.STOCK_NAMESPACE,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-16T11:00:00Z",
            "labels": {names.LABEL_STOCK_STATE: state},
            "annotations": claim,
            **metadata,
        },
        "spec": {"specName": "g1.1"},
        "status": {"phase": "Ready"},
    }


class StockRoom(KubeClient):
    """Stock, and at most one unit."""

    def __init__(self, *units: Json, unit: Json | None = None) -> None:
        self.stock = {each["metadata"]["name"]: each for each in units}
        self.unit = unit
        self.taken_meanwhile: set[str] = set()

    async def get(self, path: str, params: Any = None, *, timeout: float = 10.0) -> Json:  # noqa: ARG002
        if path == GPU_UNITS.collection(names.STOCK_NAMESPACE):
            state = params["labelSelector"].partition("=")[2]
            return {
                "items": [
                    each for each in self.stock.values() if each["metadata"]["labels"][names.LABEL_STOCK_STATE] == state
                ]
            }
        if self.unit is None:
            raise NotFoundError(404, "NotFound", path)
        return self.unit

    async def patch(self, path: str, body: Any, *_: Any, **__: Any) -> Json:
        name = path.rpartition("/")[2]
        if name in self.taken_meanwhile:
            raise ConflictError(409, "Conflict", path)
        metadata = self.stock[name]["metadata"]
        metadata["labels"].update(body["metadata"]["labels"])
        metadata["annotations"].update(body["metadata"]["annotations"])
        return self.stock[name]


async def test_the_claim_of_a_try_that_died_comes_before_free_stock() -> None:
    room = StockRoom(stock("free"), stock("ours", HOLDER, claim_mark(WANTED)))
    taken = await claim_stock(room, WANTED, NOW)
    assert taken is not None
    assert taken["metadata"]["name"] == "ours"
    assert taken["metadata"]["annotations"][names.ANNOTATION_CLAIMED_AT] == NOW.isoformat()


@pytest.mark.parametrize(
    "other",
    [
        stock("other", "runtime-instance/another", claim_mark(WANTED)),
        stock("other", HOLDER, "op-of-another-request"),
        stock("other", HOLDER, claim_mark(WANTED), deletionTimestamp="2026-11-16T12:00:00Z"),
    ],
)
async def test_what_is_claimed_for_something_else_or_goes_is_left(other: Json) -> None:
    taken = await claim_stock(StockRoom(other, stock("free")), WANTED, NOW)
    assert taken is not None
    assert taken["metadata"]["name"] == "free"


async def test_a_claim_that_the_janitor_has_just_freed_is_not_used() -> None:
    room = StockRoom(stock("free"), stock("ours", HOLDER, claim_mark(WANTED)))
    room.taken_meanwhile = {"ours"}
    taken = await claim_stock(room, WANTED, NOW)
    assert taken is not None
    assert taken["metadata"]["name"] == "free"


@pytest.mark.parametrize(("source", "holder"), [("ours", HOLDER), ("another", None), (None, None)])
async def test_a_claim_is_given_back_unless_the_unit_stands_on_it(source: str | None, holder: str | None) -> None:
    claimed = stock("ours", HOLDER, claim_mark(WANTED))
    unit = {"metadata": {"annotations": source_annotations(stock(source))}} if source else None
    room = StockRoom(claimed, unit=unit)
    with pytest.raises(ConflictError):
        async with given_back_unless_written(room, Taken(claimed, claim_for(WANTED))):
            raise ConflictError(409, "Conflict", "the unit was changed meanwhile")
    assert claim_holder_of(room.stock["ours"]) == holder
