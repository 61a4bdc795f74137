"""Stock units, as operators see them."""

import pytest

from gpu_platform.domain.json_text import Json
from platform_api.stock.service import view_stock_unit
from tests.support.builders import make_stock


@pytest.mark.parametrize(
    ("stock", "state"),
    [
        (make_stock(), "available"),
        (make_stock(phase="Progressing"), "waiting"),
        (make_stock(phase="Failed"), "waiting"),
        (make_stock(deletionTimestamp="2030-01-01T12:00:00Z"), "waiting"),
        (make_stock(claimed_by="a/b"), "claimed"),
        (make_stock(claimed_by="a/b", phase="Progressing"), "claimed"),
    ],
)
def test_stock_is_available_when_it_is_free_and_ready(stock: Json, state: str) -> None:
    assert view_stock_unit(stock).state == state


def test_claimed_stock_says_for_whom() -> None:
    shown = view_stock_unit(make_stock("pool-0", claimed_by="runtime-instance/demo")).to_json()

    assert shown == {
        "name": "pool-0",
        "namespace": "runtime-stock",
        "lifecycle": "stock",
        "pool": "pool",
        "specName": "g1.1",
        "memory": "16Gi",
        "gpu": 1,
        "state": "claimed",
        "claimedBy": "runtime-instance/demo",
        "phase": "Ready",
        "nodeName": "sim-h100-0",
        "createdAt": "2030-01-01T11:59:58Z",
    }


def test_stock_that_nobody_looked_at_yet_is_pending() -> None:
    stock = make_stock()
    del stock["status"]

    assert (view_stock_unit(stock).phase, view_stock_unit(stock).state) == ("Pending", "waiting")
