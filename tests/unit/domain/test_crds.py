"""What holds for all of our CustomResourceDefinitions, and what sets each apart."""

import re
from collections.abc import Iterator

import pytest

from gpu_platform.domain.crds import ANY_UNIT_NAME_LIMIT, Crd, Schema, build_crds
from gpu_platform.domain.functions import FUNCTION_NAME_LIMIT, WORKERS_LIMIT
from gpu_platform.domain.names import GROUP, child_name, stock_unit_name, worker_name
from gpu_platform.domain.stock import POOL_NAME_LIMIT, REPLICAS_LIMIT

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in build_crds()}

every_crd = pytest.mark.parametrize("crd", CRDS.values(), ids=CRDS.keys())


def schema_of(crd: Crd) -> Schema:
    schema: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: Schema, place: str = "") -> Iterator[tuple[str, Schema]]:
    yield place, schema
    for name, field in schema.get("properties", {}).items():
        yield from walk(field, f"{place}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from walk(schema[keyword], f"{place}[]")


def find(kind: str, place: str) -> Schema:
    return dict(walk(schema_of(CRDS[kind])))[f".{place}"]


def rules_of(schema: Schema) -> list[str]:
    return [rule["rule"] for rule in schema.get("x-kubernetes-validations", [])]


def test_there_is_one_definition_for_each_kind() -> None:
    assert [(crd["metadata"]["name"], crd["spec"]["names"]["shortNames"]) for crd in CRDS.values()] == [
        (f"gpuspecs.{GROUP}", ["gspec"]),
        (f"stockpools.{GROUP}", ["spool"]),
        (f"gpuunits.{GROUP}", ["gunit"]),
        (f"gpustorages.{GROUP}", ["gstore"]),
        (f"gpufunctions.{GROUP}", ["gfn"]),
        (f"operations.{GROUP}", ["gop"]),
    ]


def test_only_the_catalogue_belongs_to_the_whole_cluster() -> None:
    assert {kind: crd["spec"]["scope"] for kind, crd in CRDS.items()} == {
        "GPUSpec": "Cluster",
        "StockPool": "Namespaced",
        "GPUUnit": "Namespaced",
        "GPUStorage": "Namespaced",
        "GPUFunction": "Namespaced",
        "Operation": "Namespaced",
    }


def test_every_kind_with_a_status_has_it_as_a_subresource() -> None:
    with_status = {kind for kind, crd in CRDS.items() if "status" in schema_of(crd)["properties"]}
    with_subresource = {kind for kind, crd in CRDS.items() if "subresources" in crd["spec"]["versions"][0]}

    assert with_status == with_subresource == {"StockPool", "GPUUnit", "GPUStorage", "GPUFunction", "Operation"}


@every_crd
def test_every_node_of_a_schema_is_structural(crd: Crd) -> None:
    foreign = {"$ref", "$defs", "title", "anyOf", "oneOf", "allOf", "const", "nullable"}

    assert [place for place, node in walk(schema_of(crd)) if "type" not in node or foreign & node.keys()] == []


@every_crd
def test_every_field_that_a_person_may_meet_is_described(crd: Crd) -> None:
    fields = [
        (place, node)
        for place, node in walk(schema_of(crd))
        if place.startswith((".spec", ".status")) and not place.endswith("[]")
    ]

    assert [place for place, node in fields if not node.get("description")] == []


@every_crd
def test_every_rule_is_refused_in_words(crd: Crd) -> None:
    rules = [rule for _, node in walk(schema_of(crd)) for rule in node.get("x-kubernetes-validations", [])]

    assert rules
    assert [rule for rule in rules if not rule["message"]] == []


@every_crd
def test_every_list_of_named_things_is_merged_by_name(crd: Crd) -> None:
    lists = {place: node for place, node in walk(schema_of(crd)) if node["type"] == "array"}

    keys = {place: node.get("x-kubernetes-list-map-keys") for place, node in lists.items()}
    named = {place for place, node in lists.items() if {"name", "reason"} & node["items"].get("properties", {}).keys()}
    assert {place for place, key in keys.items() if key} == named


@every_crd
def test_every_column_shows_a_field_that_exists(crd: Crd) -> None:
    places = {place for place, _ in walk(schema_of(crd))} | {".metadata.creationTimestamp"}
    paths = [column["jsonPath"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]]

    assert [path for path in paths if path.replace('[?(@.type=="Ready")]', "[]") not in places] == []


@pytest.mark.parametrize(
    ("kind", "columns", "details"),
    [
        ("GPUSpec", ["CPU", "Memory", "GPU", "Product", "Price", "Age"], []),
        ("StockPool", ["Spec", "Desired", "Available", "Phase", "Age"], []),
        ("GPUUnit", ["Spec", "Phase", "Access", "Age"], ["Node", "GPU", "Image", "Reason"]),
        ("GPUStorage", ["Size", "Capacity", "Phase", "Age"], ["Class", "Mounted-By", "Reason"]),
        ("GPUFunction", ["Spec", "Workers", "Ready", "Phase", "Age"], ["Image", "Reason"]),
        ("Operation", ["Kind", "Target", "Phase", "Age"], []),
    ],
)
def test_the_columns_of_a_listing(kind: str, columns: list[str], details: list[str]) -> None:
    shown = CRDS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]

    assert [column["name"] for column in shown if "priority" not in column] == columns
    assert [column["name"] for column in shown if column.get("priority") == 1] == details


def test_every_field_of_a_gpu_spec_but_the_price_is_fixed() -> None:
    spec = find("GPUSpec", "spec")
    fixed = set(re.findall(r"oldSelf\.(\w+)", " ".join(rules_of(spec))))

    assert spec["properties"].keys() - fixed == {"pricePerHour"}


@pytest.mark.parametrize("place", ["spec.memory", "spec.access", "spec.access.primaryPort"])
def test_what_the_reconciler_answers_with_a_reason_passes_the_api_server(place: str) -> None:
    schema = find("GPUUnit", place)

    assert "pattern" not in schema
    assert "enum" not in schema
    assert rules_of(schema) == []


def test_the_largest_pool_of_the_longest_name_has_units_of_valid_names() -> None:
    longest = stock_unit_name("p" * POOL_NAME_LIMIT, REPLICAS_LIMIT * 100)

    assert len(longest) <= ANY_UNIT_NAME_LIMIT
    assert len(child_name(longest)) <= 63


def test_the_last_worker_of_the_function_with_the_longest_name_has_a_valid_name() -> None:
    longest = worker_name("f" * FUNCTION_NAME_LIMIT, WORKERS_LIMIT * 100)

    assert len(longest) <= ANY_UNIT_NAME_LIMIT
    assert len(child_name(longest)) <= 63


def test_definitions_are_built_anew_each_time() -> None:
    first = build_crds()
    first[0]["spec"]["names"]["plural"] = "changed"

    assert build_crds()[0]["spec"]["names"]["plural"] == "gpuspecs"
