"""The inventory, as a function of what is held."""

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from platform_api.health.inventory import Holdings, build_inventory, count_specs, count_used, read_node
from tests.support.builders import make_pool, make_stock, make_unit
from tests.unit.platform_api.health.nodes import make_node


def placed(unit: Json, node: str | None, phase: str) -> Json:
    return unit | {"status": {"phase": phase} | ({"nodeName": node} if node else {})}


def make_spec(name: str = "g1.1", gpu: int = 1) -> Json:
    return {"metadata": {"name": name}, "spec": {"cpu": "4", "memory": "16Gi", "gpu": gpu}}


def test_a_node_uses_the_gpus_of_the_units_whose_pods_run_there() -> None:
    units = [
        placed(make_stock("s-0"), "a", "Ready"),
        placed(make_unit("demo", gpu=4), "a", "Progressing"),
        placed(make_unit("far", gpu=2), "b", "Ready"),
    ]

    assert count_used(units, {}) == {"a": 5, "b": 2}


@pytest.mark.parametrize(
    ("node", "phase"),
    [("a", "Stopped"), ("a", "Failed"), ("a", "Pending"), (None, "Progressing"), (None, "Ready")],
)
def test_a_unit_without_a_running_pod_uses_nothing(node: str | None, phase: str) -> None:
    assert count_used([placed(make_unit("demo", gpu=4), node, phase)], {}) == {}


def test_a_unit_that_does_not_say_its_gpus_uses_those_of_its_spec() -> None:
    assert count_used([placed(make_unit("demo"), "a", "Ready")], {"g1.1": 3}) == {"a": 3}


def test_stock_is_counted_by_state_and_units_beside_it() -> None:
    units = [
        make_stock("s-0"),
        make_stock("s-1", phase="Progressing"),
        make_stock("s-2", claimed_by="runtime-instance/demo"),
        make_stock("s-3", deletionTimestamp="2030-01-01T12:00:00Z"),
        make_unit("demo"),
    ]

    [counted] = count_specs(units, ["g1.1"])

    assert counted.to_json() == {"specName": "g1.1", "available": 1, "waiting": 2, "claimed": 1, "units": 1}


def test_specs_without_stock_and_stock_without_a_spec_are_both_shown() -> None:
    counted = count_specs([make_unit("demo", specName="old")], ["new"])

    assert [(each.spec_name, each.units) for each in counted] == [("new", 0), ("old", 1)]


def test_the_whole_is_sorted_by_name() -> None:
    pools = []
    for name in ("late", "early"):
        pool = make_pool(2, status={"phase": "Ready", "available": 2, "claimed": 1})
        pool["metadata"] |= {"name": name, "creationTimestamp": "2030-01-01T11:00:00Z"}
        pools.append(pool)
    holdings = Holdings(
        nodes=(make_node("b", gpus=4), make_node("a", product="A100", gpus=8, ready=False)),
        units=(placed(make_stock("s-0"), "b", "Ready"),),
        specs=(make_spec("t4.1"), make_spec()),
        pools=tuple(pools),
    )

    inventory = build_inventory(holdings, is_connected=True).to_json()

    assert inventory["kubernetesConnected"] is True
    assert (inventory["nodeCount"], inventory["readyNodeCount"]) == (2, 1)
    assert (inventory["totalGpuCapacity"], inventory["totalGpuAllocatable"]) == (12, 12)
    assert [product["product"] for product in inventory["gpuProducts"]] == ["A100", "H100"]
    assert inventory["nodes"] == [
        {"name": "a", "ready": False, "product": "A100", "capacity": 8, "allocatable": 8, "used": 0},
        {"name": "b", "ready": True, "product": "H100", "capacity": 4, "allocatable": 4, "used": 1},
    ]
    assert [spec["specName"] for spec in inventory["specs"]] == ["g1.1", "t4.1"]
    assert inventory["pools"] == [
        {"name": name, "specName": "g1.1", "replicas": 2, "available": 2, "claimed": 1, "phase": "Ready"}
        for name in ("early", "late")
    ]


@pytest.mark.parametrize("status", [{}, {"capacity": None}, {"capacity": {names.GPU_RESOURCE: "many"}}])
def test_a_node_that_says_nothing_readable_has_no_gpus_and_is_not_ready(status: Json) -> None:
    node = read_node({"metadata": {"name": "young"}, "status": status})

    assert (node.is_ready, node.product, node.capacity, node.allocatable) == (False, "unknown", 0, 0)
