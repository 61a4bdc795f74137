"""What an operator's request for stock becomes."""

from typing import Any

import pytest
from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import (
    POOL_NAME_LIMIT,
    REPLICAS_LIMIT,
    PoolRequest,
    StockUnitsRequest,
    build_pool,
    build_spec,
    default_pool_name,
    find_size_problem,
    seed_pool_name,
)

HASH = "a" * 64
CATALOGUE = GPUSpecSpec(memory="16Gi", gpu=1)


def seed(**changes: Any) -> StockUnitsRequest:
    return StockUnitsRequest.model_validate({"specName": "g1.1", "replicas": 2, **changes})


def test_a_pools_name_comes_from_spec_and_operation_and_is_always_the_same() -> None:
    name = seed_pool_name("g1.1", "op-1")
    assert name == seed_pool_name("g1.1", "op-1")
    assert name.startswith("stock-g1-1-")
    assert name != seed_pool_name("g1.1", "op-2")
    assert default_pool_name("g1.1", "op-1") == name.replace("stock-", "pool-")


@pytest.mark.parametrize("spec_name", ["a" * 63, "g1.1", "b-" * 20 + "b"])
def test_a_pools_name_is_a_name_that_the_api_server_takes(spec_name: str) -> None:
    for name in (seed_pool_name(spec_name, "x"), default_pool_name(spec_name, "x")):
        assert len(name) <= POOL_NAME_LIMIT
        assert names.is_unit_name(name)


def test_stock_units_become_a_pool_that_is_filled_once() -> None:
    pool = build_pool(seed(), "stock-x", "op-1", HASH)
    assert pool["spec"] == {"specName": "g1.1", "replicas": 2, "replenish": "Never"}
    assert pool["metadata"]["namespace"] == names.STOCK_NAMESPACE
    assert pool["metadata"]["labels"] == {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE}
    assert pool["metadata"]["annotations"] == {
        names.ANNOTATION_OPERATION_ID: "op-1",
        names.ANNOTATION_REQUEST_HASH: HASH,
        names.ANNOTATION_ACCEPTED_SPEC: '{"replenish":"Never","replicas":2,"specName":"g1.1"}',
    }


def test_a_pool_is_as_it_was_asked_for() -> None:
    request = PoolRequest(name="warm", spec_name="g1.1", replicas=0, image="example/warm", replenish="Always")
    pool = build_pool(request, request.name, "op-1", HASH)
    assert pool["spec"] == {"specName": "g1.1", "replicas": 0, "replenish": "Always", "image": "example/warm"}


def test_a_spec_is_built_only_from_memory_and_gpus() -> None:
    assert build_spec(seed(), "op-1", HASH) is None
    assert build_spec(seed(memory="16Gi"), "op-1", HASH) is None
    spec = build_spec(seed(memory="16Gi", gpu=1), "op-1", HASH)
    assert spec is not None
    assert (spec["metadata"]["name"], spec["spec"]["memory"], spec["spec"]["gpu"]) == ("g1.1", "16Gi", 1)


@pytest.mark.parametrize(
    ("request_", "catalogue", "problem"),
    [
        (seed(memory="much", gpu=1), None, "memory: 'much' is not a quantity"),
        (seed(memory="16Gi", gpu=1), None, None),
        (seed(memory="16Gi"), None, "there is no GPUSpec 'g1.1', and a new one needs memory and gpu"),
        (seed(gpu=1), None, "there is no GPUSpec 'g1.1', and a new one needs memory and gpu"),
        (seed(), CATALOGUE, None),
        (seed(memory="16384Mi", gpu=1), CATALOGUE, None),
        (seed(memory="8Gi"), CATALOGUE, "memory: the GPUSpec 'g1.1' has 16Gi, not 8Gi"),
        (seed(gpu=0), CATALOGUE, "gpu: the GPUSpec 'g1.1' has 1, not 0"),
    ],
)
def test_the_size_must_be_that_of_the_spec(
    request_: StockUnitsRequest, catalogue: GPUSpecSpec | None, problem: str | None
) -> None:
    found = find_size_problem(request_, catalogue)
    assert (found or "").startswith(problem or "")
    assert (found is None) == (problem is None)


@pytest.mark.parametrize(
    "change", [{"replicas": 0}, {"replicas": REPLICAS_LIMIT + 1}, {"specName": "a/b"}, {"gpu": -1}]
)
def test_what_is_no_request_for_stock(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        seed(**change)


@pytest.mark.parametrize("name", ["", "Pool", "a.b", "-a", "p" * (POOL_NAME_LIMIT + 1)])
def test_what_is_no_name_of_a_pool(name: str) -> None:
    with pytest.raises(ValidationError):
        PoolRequest(name=name, spec_name="g1.1", replicas=1)
