"""Jobs: how an operation looks as one, and what a request for stock may say."""

import json
from typing import Any

import pytest

from gpu_platform.api_models.fields import is_object_name
from gpu_platform.api_models.stock import CreateStockPool, SeedStockUnits
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import PoolRequest, StockUnitsRequest
from gpu_platform.domain.value import Value
from platform_api.http.bodies import decode_body
from platform_api.http.errors import ApiError
from platform_api.stock.jobs import build_job, find_size_refusal, is_job, view_job

SEED = StockUnitsRequest(spec_name="g1.1", replicas=2)
KNOWN = GPUSpecSpec(memory="16Gi", gpu=1)


def recorded(request: StockUnitsRequest | PoolRequest = SEED, **status: Any) -> Json:
    operation = build_job("nightly", request, "stock-g1-1-abc")
    operation["metadata"]["creationTimestamp"] = "2030-01-01T12:00:00Z"
    return operation | ({"status": status} if status else {})


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        (None, "pending"),
        ("Pending", "pending"),
        ("Running", "running"),
        ("Succeeded", "succeeded"),
        ("Failed", "failed"),
    ],
)
def test_the_phase_is_the_status(phase: str | None, shown: str) -> None:
    assert view_job(recorded(phase=phase)).status == shown


def test_a_new_job_is_shown_with_its_pool() -> None:
    assert view_job(recorded()).to_json() == {
        "id": "nightly",
        "operationID": "nightly",
        "type": "seed_stock_units",
        "status": "pending",
        "objectName": "stock-g1-1-abc",
        "objectNamespace": "runtime-stock",
        "stack": "stock-pool/stock.stock-g1-1-abc",
        "createdAt": "2030-01-01T12:00:00Z",
        "updatedAt": "2030-01-01T12:00:00Z",
    }


def test_a_failed_job_says_why_and_when() -> None:
    job = view_job(
        recorded(
            phase="Failed",
            reason="NameTaken",
            message="the pool exists",
            startedAt="2030-01-01T12:00:01Z",
            finishedAt="2030-01-01T12:00:02Z",
        )
    ).to_json()

    assert job["error"] == "the pool exists"
    assert "stack" not in job
    assert job["updatedAt"] == "2030-01-01T12:00:02Z"


def test_only_work_on_stock_is_a_job() -> None:
    pool = PoolRequest(name="p", spec_name="g1.1", replicas=0)

    assert is_job(recorded())
    assert is_job(recorded(pool))
    assert view_job(recorded(pool)).type == "create_stock_pool"
    assert not is_job({"spec": {"kind": "CreateUnit"}})


@pytest.mark.parametrize(
    ("catalogue", "sizes", "fields"),
    [
        (None, {"memory": "16Gi", "gpu": 0}, []),
        (None, {}, ["memory", "gpu"]),
        (None, {"gpu": 0}, ["memory"]),
        (None, {"memory": "1Gi"}, ["gpu"]),
        (KNOWN, {}, []),
        (KNOWN, {"memory": "16384Mi", "gpu": 1}, []),
        (KNOWN, {"memory": "8Gi"}, ["memory"]),
        (KNOWN, {"gpu": 2}, ["gpu"]),
    ],
)
def test_a_size_is_needed_for_a_new_spec_and_fits_a_known_one(
    catalogue: GPUSpecSpec | None, sizes: Json, fields: list[str]
) -> None:
    refusal = find_size_refusal(SEED.model_copy(update=sizes), catalogue)

    assert [detail.field for detail in (refusal.details if refusal else ())] == fields
    assert refusal is None or (refusal.status, refusal.code) == (400, "invalid_request")


def refused_fields(model: type[Value], body: Json) -> list[str]:
    with pytest.raises(ApiError) as refusal:
        decode_body(model, json.dumps(body).encode())
    assert refusal.value.status == 400
    return [detail.field for detail in refusal.value.details]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"operationID": None}, "operationID"),
        ({"operationID": ""}, "operationID"),
        ({"operationID": " a"}, "operationID"),
        ({"operationID": "a\n"}, "operationID"),
        ({"operationID": "a" * 201}, "operationID"),
        ({"specName": None}, "specName"),
        ({"specName": "a..b"}, "specName"),
        ({"specName": "../secrets"}, "specName"),
        ({"memory": "much"}, "memory"),
        ({"memory": "0"}, "memory"),
        ({"memory": "-1Gi"}, "memory"),
        ({"gpu": -1}, "gpu"),
        ({"gpu": 65}, "gpu"),
        ({"gpu": "1"}, "gpu"),
        ({"replicas": -1}, "replicas"),
        ({"replicas": 10_001}, "replicas"),
        ({"replicas": 1.5}, "replicas"),
        ({"unknown": 1}, "unknown"),
    ],
)
@pytest.mark.parametrize("model", [SeedStockUnits, CreateStockPool])
def test_a_wrong_field_is_named(model: type[Value], change: Json, field: str) -> None:
    body = {"operationID": "nightly", "specName": "g1.1", "replicas": 1} | change
    body = {name: value for name, value in body.items() if value is not None}

    assert refused_fields(model, body) == [field]


def test_stock_is_seeded_with_at_least_one_and_a_pool_may_hold_none() -> None:
    body = {"operationID": "nightly", "specName": "g1.1", "replicas": 0}

    assert refused_fields(SeedStockUnits, body) == ["replicas"]
    assert decode_body(CreateStockPool, json.dumps(body).encode()).replicas == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"namespace": "runtime-instance"}, "namespace"),
        ({"name": "Upper"}, "name"),
        ({"name": "with.dot"}, "name"),
        ({"name": "n" * 41}, "name"),
        ({"replenish": "Sometimes"}, "replenish"),
        ({"image": ""}, "image"),
    ],
)
def test_what_only_a_pool_has_is_checked_too(change: Json, field: str) -> None:
    assert refused_fields(CreateStockPool, {"operationID": "a", "specName": "g1.1", "replicas": 1} | change) == [field]


def test_what_is_unsaid_is_the_same_request_as_its_default_said() -> None:
    short = decode_body(CreateStockPool, b'{"operationID": "a", "specName": "g1.1", "replicas": 1}')
    said = short.to_request().to_json() | {"operationID": "a", "namespace": "runtime-stock"}

    long = decode_body(CreateStockPool, json.dumps(said).encode())

    assert build_job("a", long.to_request(), "p") == build_job("a", short.to_request(), "p")


@pytest.mark.parametrize("text", ["", "..", ".", "a/b", "a?watch=true", "A", "a%2e", "-a", "a" * 254])
def test_what_is_no_name_never_becomes_part_of_a_path(text: str) -> None:
    assert not is_object_name(text)


@pytest.mark.parametrize("text", ["a", "g1.1", "pool-0", "a" * 63])
def test_names_of_objects_are_names(text: str) -> None:
    assert is_object_name(text)
