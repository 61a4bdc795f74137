"""What a tenant's request for a function becomes: checked, hashed, merged, built; and a function made after a unit."""

import json
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.functions import (
    FunctionChange,
    FunctionRequest,
    GPUFunctionSpec,
    build_function,
    function_of_unit,
    merge_function_change,
    normalise_function,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import marks_of, request_hash
from gpu_platform.domain.stacks import StackAddress, StackKind, intent_of
from gpu_platform.domain.value import RequestError
from tests.support.builders import make_unit

HASH = "a" * 64
SOCKETS = "/tmp/serverless-framework"


def request(**fields: Any) -> FunctionRequest:
    return FunctionRequest.model_validate({"name": "words", "specName": "g1.1", "image": "example/words", **fields})


def spec(**fields: Any) -> GPUFunctionSpec:
    return GPUFunctionSpec.model_validate({"specName": "g1.1", "image": "example/words", **fields})


def test_unsaid_defaults_make_no_other_request() -> None:
    said = request(template={"args": []}, framework={"invokePath": "/invoke"}, minWorkers=0, maxWorkers=1)
    assert request_hash(normalise_function(said)) == request_hash(normalise_function(request()))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "other"},
        {"specName": "g1.2"},
        {"image": "example/words:2"},
        {"template": {"args": ["a"]}},
        {"framework": {"healthPath": "/ready"}},
        {"concurrency": 2},
        {"maxWorkers": 2},
        {"idleTimeoutSeconds": 10},
        {"timeoutSeconds": 10},
        {"maxAttempts": 1},
        {"ackWaitSeconds": 10},
        {"queueLimit": 10},
    ],
)
def test_whatever_is_said_differently_is_another_request(fields: Json) -> None:
    assert request_hash(normalise_function(request(**fields))) != request_hash(normalise_function(request()))


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"name": "Words"}, "name", "1 to 30 lower-case letters"),
        ({"name": ""}, "name", "1 to 30"),
        ({"name": "a" * 31}, "name", "1 to 30"),
        ({"name": "a.b"}, "name", "inner hyphens"),
        ({"name": "a_b"}, "name", "inner hyphens"),
        ({"name": "-a"}, "name", "inner hyphens"),
        ({"name": "words\n"}, "name", "inner hyphens"),
        ({"minWorkers": 3, "maxWorkers": 2}, "minWorkers", "no more than maxWorkers: 3 is more than 2"),
        ({"minWorkers": 2}, "minWorkers", "2 is more than 1"),
        ({"template": {"envs": [{"name": "A"}, {"name": "A"}]}}, "template.envs[1].name", "'A' is there twice"),
        ({"framework": {"socketPath": f"{SOCKETS}/.."}}, "framework.socketPath", "should name a file"),
        ({"framework": {"socketPath": f"{SOCKETS}/."}}, "framework.socketPath", "should name a file"),
    ],
)
def test_what_the_schema_cannot_see_is_refused_by_field(fields: Json, field: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalise_function(request(**fields))
    assert caught.value.field == field
    assert words in caught.value.message


@pytest.mark.parametrize("name", ["a", "7", "words", "a-b--c", "a" * 30])
def test_a_dns_label_of_up_to_thirty_characters_is_a_name(name: str) -> None:
    assert normalise_function(request(name=name)).name == name


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({}, {}, {}),
        ({"template": {"args": ["a"]}}, {"image": "new"}, {"image": "new", "template": {"args": ["a"]}}),
        ({"template": {"args": ["a"]}}, {"template": {"command": ["b"]}}, {"template": {"command": ["b"]}}),
        ({"template": {"args": ["a"]}}, {"template": {}}, {"template": {}}),
        ({"maxWorkers": 5}, {"minWorkers": 5}, {"minWorkers": 5, "maxWorkers": 5}),
        ({"minWorkers": 1}, {"minWorkers": 0}, {"minWorkers": 0}),
        ({"timeoutSeconds": 60}, {"queueLimit": 5}, {"timeoutSeconds": 60, "queueLimit": 5}),
        (
            {"framework": {"invokePath": "/run"}},
            {"framework": {"healthPath": "/up"}},
            {"framework": {"healthPath": "/up"}},
        ),
    ],
)
def test_what_is_said_takes_the_place_of_what_was_and_the_rest_stays(before: Json, change: Json, after: Json) -> None:
    assert merge_function_change(spec(**before), FunctionChange.model_validate(change)) == spec(**after)


def test_a_change_is_checked_against_what_it_makes() -> None:
    with pytest.raises(RequestError) as caught:
        merge_function_change(spec(maxWorkers=2), FunctionChange(min_workers=3))
    assert caught.value.field == "minWorkers"


def test_every_field_but_the_spec_can_be_changed() -> None:
    assert set(FunctionChange.model_fields) == set(GPUFunctionSpec.model_fields) - {"spec_name"}


def test_a_function_says_what_was_accepted_and_which_request_made_it() -> None:
    wanted = normalise_function(request(minWorkers=1))
    function = build_function(wanted, "runtime-instance-acme", "op-1", HASH)
    metadata = function["metadata"]
    assert (function["kind"], metadata["name"], metadata["namespace"]) == (
        "GPUFunction",
        "words",
        "runtime-instance-acme",
    )
    assert metadata["labels"] == {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE}
    assert marks_of(function) == ("op-1", HASH)
    assert (
        json.loads(metadata["annotations"][names.ANNOTATION_ACCEPTED_SPEC])
        == function["spec"]
        == {field: value for field, value in wanted.to_json().items() if field != "name"}
    )
    metadata["uid"] = "u"
    intent = intent_of(function)
    assert intent is not None
    assert intent.address == StackAddress(StackKind.GPU_FUNCTION, "acme", "words")


def test_a_function_made_after_a_unit_is_like_it_and_was_accepted_by_nobody() -> None:
    serverless = {
        "requestID": "words",
        "minAvailableCount": 3,
        "idleTimeoutSeconds": 9,
        "framework": {"invokePath": "/x"},
    }
    unit = make_unit("first", "runtime-instance-acme", serverless=serverless, template={"args": ["a"]})
    function = function_of_unit(unit)
    assert function is not None
    assert (function["metadata"]["name"], function["metadata"]["namespace"]) == ("words", "runtime-instance-acme")
    made = GPUFunctionSpec.model_validate(function["spec"])
    assert (made.spec_name, made.image, made.template.args) == ("g1.1", "example/train", ("a",))
    assert (made.min_workers, made.max_workers, made.idle_timeout_seconds) == (3, 3, 9)
    assert made.framework.invoke_path == "/x"
    assert marks_of(function) == (None, None)
    function["metadata"]["uid"] = "u"
    assert intent_of(function) is None


@pytest.mark.parametrize("fields", [{}, {"serverless": {"requestID": "words"}, "image": None}])
def test_a_unit_that_takes_no_calls_or_has_no_image_makes_no_function(fields: Json) -> None:
    assert function_of_unit(make_unit(**fields)) is None


def test_a_function_that_a_unit_is_made_after_without_workers_may_have_one() -> None:
    function = function_of_unit(make_unit(serverless={"requestID": "words"}))
    assert function is not None
    assert (function["spec"]["minWorkers"], function["spec"]["maxWorkers"]) == (0, 1)
