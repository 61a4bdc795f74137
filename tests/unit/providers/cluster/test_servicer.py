"""What programs see of the package: its schema, its sessions, and the rights that it asks for."""

from typing import Any

from gpu_platform.domain.rbac import Scope
from providers.cluster.kinds import build_package_schema
from providers.cluster.rbac import RULES
from providers.cluster.resources import GPU_FUNCTION, GPU_SPEC, GPU_STORAGE, GPU_UNIT, STOCK_POOL, VERSION
from providers.cluster.servicer import LIMIT, Sessions


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if "$ref" in node else set()
        return own.union(*(references(each) for each in node.values()))
    return set().union(*(references(each) for each in node)) if isinstance(node, list) else set()


def test_the_schema_has_every_resource_and_every_type_that_it_speaks_of() -> None:
    schema = build_package_schema()

    assert (schema["name"], schema["version"]) == ("gpuplatform", VERSION)
    assert set(schema["resources"]) == {GPU_UNIT, GPU_STORAGE, GPU_FUNCTION, STOCK_POOL, GPU_SPEC}
    assert references(schema) == {f"#/types/{token}" for token in schema["types"]}


def test_the_schema_says_what_the_models_say() -> None:
    schema = build_package_schema()
    unit, port = schema["resources"][GPU_UNIT], schema["types"]["gpuplatform:index:UnitPort"]

    assert unit["requiredInputs"] == ["name", "spec"]
    assert unit["required"] == ["tenant", "name", "spec", "namespace", "uid", "acceptedHash"]
    assert port["required"] == ["name", "port"]
    assert port["properties"]["port"] == {"type": "integer", "description": "Its number."}
    assert port["properties"]["protocol"]["default"] == "TCP"
    assert "tenant" not in schema["resources"][STOCK_POOL]["properties"]
    assert "namespace" not in schema["resources"][GPU_SPEC]["properties"]


def test_the_provider_writes_units_of_tenants_and_only_claims_stock() -> None:
    stock = [rule for rule in RULES if "gpuunits" in rule.resources and Scope.STOCK in rule.scopes]

    assert {verb for rule in stock for verb in rule.verbs} == {"list", "patch", "manage"}


async def test_cancelling_one_engine_leaves_the_others_at_work() -> None:
    sessions = Sessions()
    sessions.of("one").cancelled.set()

    assert sessions.of("one").cancelled.is_set()
    assert not sessions.of("other").cancelled.is_set()


async def test_engines_that_left_are_forgotten_in_time() -> None:
    sessions = Sessions()
    first = sessions.of("first")
    for number in range(LIMIT):
        sessions.of(str(number))

    assert sessions.of("first") is not first
