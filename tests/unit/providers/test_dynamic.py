"""What a tenant's program may wish, what of a change needs a new one, and whose a left one is."""

from typing import Any

import pulumi
import pytest
from pulumi.output import Unknown

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import Access, StorageMount, Template
from providers.dynamic import build_input
from providers.rest.connection import RefusedError
from providers.rest.kinds import FUNCTIONS, UNITS
from providers.rest.lifecycle import build_operation_id, is_made_for

PORTS = {"ports": [{"name": "web", "port": 80}, {"name": "metrics", "port": 9000}]}
UNKNOWN = Unknown()  # type: ignore[no-untyped-call]
KEY, OWNER = "gk_aaaaaaaa_secret", "acme/urn:pulumi:dev::shop::unit::web"


def wish(**fields: Any) -> Json:
    return {"name": "web", "specName": "g1.1", "image": "example/web", "owner": OWNER, **fields}


def checked(**fields: Any) -> Json:
    inputs, failures = UNITS.check(wish(**fields))
    assert failures == ()
    return inputs


def view_of(inputs: Json, **fields: Any) -> Json:
    """How the API shows a unit with these inputs."""
    shown = {key: value for key, value in inputs.items() if key not in ("owner", "readyWithinSeconds", "stockName")}
    return {
        **shown,
        "namespace": "runtime-instance",
        "lifecycle": "instance",
        "phase": "Ready",
        "generation": 1,
        "operationID": "order-1",
        "accessURL": "http://unit-web:80",
        **fields,
    }


def test_what_is_left_out_is_kept_as_its_default() -> None:
    inputs = checked(template=PORTS)

    assert inputs["running"] is True
    assert inputs["readyWithinSeconds"] == 300
    assert inputs["access"] == {"primaryPort": "web", "scheme": "http"}
    assert inputs["template"]["ports"][0] == {"name": "web", "port": 80, "protocol": "TCP"}


def test_what_is_said_as_its_default_makes_no_difference() -> None:
    assert checked(template={"command": []}, running=True, readyWithinSeconds=300) == checked()


def test_checking_again_changes_nothing() -> None:
    inputs = checked(template=PORTS, stockName="g1-0", running=False)

    assert UNITS.check(inputs) == (inputs, ())


def test_numbers_come_as_floats_from_pulumi() -> None:
    inputs = checked(template={"ports": [{"name": "web", "port": 80.0}]}, readyWithinSeconds=5.0)

    assert (inputs["template"]["ports"][0]["port"], inputs["readyWithinSeconds"]) == (80, 5)


def test_what_belongs_to_pulumi_is_no_input() -> None:
    assert checked(__provider="gASV") == checked()


@pytest.mark.parametrize(
    ("fields", "place", "reason"),
    [
        ({"name": "Web_1"}, "name", "should be 1 to 40 lower-case letters, digits and inner hyphens"),
        ({"image": ""}, "image", "string should have at least 1 character"),
        ({"gpus": 2}, "gpus", "is not a field that is known here"),
        (
            {"ssh": {"enabled": True}},
            "ssh",
            "cannot be asked for here, where the state would keep its token; send it by PUT",
        ),
        ({"template": {"comand": ["sh"]}}, "template.comand", "is not a field that is known here"),
        (
            {"template": {"ports": [{"name": "web", "port": "80"}]}},
            "template.ports[0].port",
            "should be a valid integer",
        ),
        (
            {"template": {"ports": [{"name": "web", "port": 80.5}]}},
            "template.ports[0].port",
            "should be a valid integer",
        ),
        (
            {"template": PORTS, "access": {"primaryPort": "ssh"}},
            "access.primaryPort",
            "'ssh' is no port of the template; it has web, metrics",
        ),
        ({"running": "yes"}, "running", "should be a valid boolean"),
        ({"readyWithinSeconds": -1}, "readyWithinSeconds", "should be greater than or equal to 0"),
    ],
)
def test_what_the_api_would_refuse_is_refused_at_once_with_its_field(fields: Json, place: str, reason: str) -> None:
    _, [failure] = UNITS.check(wish(**fields))

    assert (failure.field, failure.reason) == (place, reason)


def test_a_missing_field_is_named() -> None:
    _, [failure] = UNITS.check({"name": "web", "specName": "g1.1"})

    assert (failure.field, failure.reason) == ("image", "is required")


def test_nothing_is_refused_while_a_part_is_unknown() -> None:
    unknown = {"envs": [{"name": "HOST", "value": UNKNOWN}]}

    inputs, failures = UNITS.check(wish(template=unknown, access={"primaryPort": "web"}))

    assert failures == ()
    assert inputs["template"] is not None


def test_around_what_is_unknown_the_defaults_are_those_of_the_known_wish() -> None:
    envs = [{"name": "HOST", "value": "a"}]
    known = checked(template={**PORTS, "envs": envs})
    inputs, _ = UNITS.check(wish(template={**PORTS, "envs": [{"name": "HOST", "value": UNKNOWN}]}))

    inputs["template"]["envs"] = envs
    assert inputs == known


def test_the_rest_of_an_unknown_wish_shows_no_changes() -> None:
    inputs, _ = UNITS.check(wish(image=UNKNOWN, template=PORTS))

    assert UNITS.find_difference(checked(template=PORTS), inputs).changed == ("image",)


@pytest.mark.parametrize(
    ("old", "new", "changed", "replacing"),
    [
        ({}, {}, (), ()),
        ({}, {"name": "other"}, ("name",), ("name",)),
        ({}, {"specName": "g2.1"}, ("specName",), ("specName",)),
        ({}, {"stockName": "g1-0"}, ("stockName",), ("stockName",)),
        ({"stockName": "g1-0"}, {"stockName": "g1-1"}, ("stockName",), ("stockName",)),
        ({"stockName": "g1-0"}, {}, (), ()),
        ({}, {"image": "example/next"}, ("image",), ()),
        ({}, {"template": {"args": ["-v"]}}, ("template",), ()),
        ({"template": {"args": ["-v"]}}, {}, ("template",), ("template",)),
        ({"template": PORTS}, {"template": PORTS, "access": {"primaryPort": "metrics"}}, ("access",), ()),
        ({"template": PORTS}, {"template": PORTS, "access": {"primaryPort": "web"}}, (), ()),
        ({}, {"running": False}, ("running",), ()),
        ({}, {"serverless": {"requestID": "words"}}, ("serverless",), ()),
        ({"serverless": {"requestID": "words"}}, {}, ("serverless",), ("serverless",)),
        ({"serverless": {"requestID": "words"}}, {"serverless": {"requestID": "words", "framework": {}}}, (), ()),
        ({}, {"readyWithinSeconds": 10, "owner": "acme/another"}, (), ()),
        ({}, {"image": "example/next", "specName": "g2.1"}, ("specName", "image"), ("specName",)),
    ],
)
def test_what_becomes_of_a_change(old: Json, new: Json, changed: tuple[str, ...], replacing: tuple[str, ...]) -> None:
    found = UNITS.find_difference(checked(**old), checked(**new))

    assert (found.changed, found.replacing) == (changed, replacing)


def test_what_is_unknown_counts_as_another_value() -> None:
    news, _ = UNITS.check(wish(specName=UNKNOWN))

    assert UNITS.find_difference(checked(), news).replacing == ("specName",)


def test_a_template_that_is_unknown_is_not_taken_for_an_empty_one() -> None:
    news, _ = UNITS.check(wish(template=UNKNOWN))
    found = UNITS.find_difference(checked(template={"args": ["-v"]}), news)

    assert (found.changed, found.replacing) == (("template",), ())


def test_a_unit_that_is_as_declared_is_no_change() -> None:
    inputs = checked(template=PORTS, stockName="g1-0")

    assert UNITS.find_difference(UNITS.build_outputs(view_of(inputs), inputs), inputs).changed == ()


def test_a_unit_that_was_changed_behind_its_back_is_a_change() -> None:
    inputs = checked(template=PORTS)
    outputs = UNITS.build_outputs(view_of(inputs, image="example/other", running=False), inputs)

    assert UNITS.find_difference(outputs, inputs).changed == ("image", "running")


def test_a_field_of_a_newer_api_is_no_change() -> None:
    inputs = checked(template=PORTS)
    view = view_of(inputs, template={**inputs["template"], "ulimits": []}, colour="green")

    assert UNITS.find_difference(UNITS.build_outputs(view, inputs), inputs).changed == ()


def test_a_request_has_what_the_api_knows_and_nothing_of_pulumis() -> None:
    request = UNITS.build_request(checked(stockName="g1-0", running=False), "order-1")

    assert set(request) == {"operationID", "name", "specName", "image", "template", "storageMounts", "stockName"}
    assert request["operationID"] == "order-1"


def test_a_change_says_the_access_even_where_it_is_the_default() -> None:
    assert UNITS.build_change(checked(template=PORTS))["access"] == {"primaryPort": "web", "scheme": "http"}


def test_the_inputs_that_a_refresh_finds_are_those_of_the_program() -> None:
    inputs = checked(template=PORTS, stockName="g1-0")

    assert UNITS.build_inputs(UNITS.build_outputs(view_of(inputs), inputs)) == inputs


def test_a_unit_without_ports_has_no_access() -> None:
    inputs = checked(template=PORTS)
    outputs = UNITS.build_outputs(view_of(checked()), inputs)

    assert "access" not in outputs


def function_wish(**fields: Any) -> Json:
    return {"name": "words", "specName": "g1.1", "image": "example/words", "owner": OWNER, **fields}


def checked_function(**fields: Any) -> Json:
    inputs, failures = FUNCTIONS.check(function_wish(**fields))
    assert failures == ()
    return inputs


def function_view_of(inputs: Json, **fields: Any) -> Json:
    """How the API shows a function with these inputs."""
    shown = {key: value for key, value in inputs.items() if key not in ("owner", "readyWithinSeconds")}
    return {
        **shown,
        "namespace": "runtime-instance",
        "phase": "Ready",
        "operationID": "order-1",
        "workers": 0,
        **fields,
    }


def test_a_function_has_its_defaults_said() -> None:
    inputs = checked_function()

    assert (inputs["maxWorkers"], inputs["timeoutSeconds"], inputs["readyWithinSeconds"]) == (1, 259_200, 300)
    assert FUNCTIONS.check(inputs) == (inputs, ())
    assert checked_function(timeoutSeconds=259_200.0, template={}) == inputs


@pytest.mark.parametrize(
    ("fields", "place", "reason"),
    [
        ({"name": "a" * 31}, "name", "should be 1 to 30 lower-case letters, digits and inner hyphens"),
        ({"minWorkers": 2}, "minWorkers", "should be no more than maxWorkers: 2 is more than 1"),
        ({"running": False}, "running", "is not a field that is known here"),
        ({"concurrency": 0}, "concurrency", "should be greater than or equal to 1"),
    ],
)
def test_what_a_function_cannot_be_is_refused_at_once_with_its_field(fields: Json, place: str, reason: str) -> None:
    _, [failure] = FUNCTIONS.check(function_wish(**fields))

    assert (failure.field, failure.reason) == (place, reason)


@pytest.mark.parametrize(
    ("old", "new", "changed", "replacing"),
    [
        ({}, {}, (), ()),
        ({}, {"name": "other"}, ("name",), ("name",)),
        ({}, {"specName": "g2.1"}, ("specName",), ("specName",)),
        ({}, {"image": "example/next"}, ("image",), ()),
        ({"template": {"args": ["-v"]}}, {}, ("template",), ()),
        ({"timeoutSeconds": 60}, {}, ("timeoutSeconds",), ()),
        ({"maxWorkers": 4}, {"maxWorkers": 5, "minWorkers": 1}, ("minWorkers", "maxWorkers"), ()),
        ({}, {"readyWithinSeconds": 10, "owner": "acme/another"}, (), ()),
    ],
)
def test_what_becomes_of_a_change_of_a_function(
    old: Json, new: Json, changed: tuple[str, ...], replacing: tuple[str, ...]
) -> None:
    found = FUNCTIONS.find_difference(checked_function(**old), checked_function(**new))

    assert (found.changed, found.replacing) == (changed, replacing)


def test_a_function_that_is_as_declared_is_no_change_and_one_that_was_changed_is() -> None:
    inputs = checked_function(minWorkers=1)
    view = function_view_of(inputs, colour="green")
    del view["timeoutSeconds"]

    assert FUNCTIONS.find_difference(FUNCTIONS.build_outputs(view, inputs), inputs).changed == ()
    assert FUNCTIONS.build_inputs(FUNCTIONS.build_outputs(view, inputs)) == inputs
    edited = FUNCTIONS.build_outputs({**view, "minWorkers": 0}, inputs)
    assert FUNCTIONS.find_difference(edited, inputs).changed == ("minWorkers",)


def test_a_request_for_a_function_has_nothing_of_pulumis() -> None:
    inputs = checked_function(concurrency=2)

    assert set(FUNCTIONS.build_request(inputs, "order-1")) == {*inputs, "operationID"} - {"owner", "readyWithinSeconds"}
    assert set(FUNCTIONS.build_change(inputs)) == set(inputs) - {"name", "specName", "owner", "readyWithinSeconds"}


def test_around_what_is_unknown_a_function_has_the_defaults_of_the_known_wish() -> None:
    inputs, failures = FUNCTIONS.check(function_wish(image=UNKNOWN))

    assert failures == ()
    assert FUNCTIONS.find_difference(checked_function(), inputs).changed == ("image",)


def test_a_resource_knows_the_operations_that_it_made() -> None:
    assert is_made_for(build_operation_id(KEY, OWNER, "1f"), KEY, OWNER)


def test_each_unit_has_an_operation_of_its_own() -> None:
    assert build_operation_id(KEY, OWNER, "1f") != build_operation_id(KEY, OWNER, "2f")


@pytest.mark.parametrize(
    ("operation_id", "key", "owner"),
    [
        (build_operation_id(KEY, "acme/urn:pulumi:prod::shop::unit::web", "1f"), KEY, OWNER),
        (build_operation_id("gk_bbbbbbbb_secret", OWNER, "1f"), KEY, OWNER),
        (build_operation_id(KEY, OWNER, "1f").replace("-1f-", "-2f-"), KEY, OWNER),
        ("order-1", KEY, OWNER),
        ("pulumi-1f-", KEY, OWNER),
        ("pulumi-1f-ä", KEY, OWNER),
        (None, KEY, OWNER),
        (build_operation_id(KEY, None, "1f"), KEY, None),
    ],
)
def test_every_other_operation_is_somebody_elses(operation_id: str | None, key: str, owner: str | None) -> None:
    assert not is_made_for(operation_id, key, owner)


def test_a_refusal_is_the_apis_sentence_with_its_code_and_request() -> None:
    error = RefusedError(400, "invalid_request", "image: is required", "d3b2")

    assert str(error) == "image: is required (400 invalid_request, request d3b2)"


def test_a_wrong_key_says_how_to_set_another() -> None:
    error = RefusedError(401, "unauthenticated", "this API key is not known", None)

    assert "`pulumi config set --secret gpuplatform:key`" in str(error)


def test_a_model_is_an_input_like_the_mapping_with_its_fields() -> None:
    template = Template.model_validate(PORTS)
    mount = StorageMount(name="weights", mount_path="/weights")
    assert build_input(template) == PORTS
    assert build_input((mount, PORTS)) == [{"name": "weights", "mountPath": "/weights"}, PORTS]
    assert checked(template=build_input(template)) == checked(template=PORTS)


async def test_a_model_in_an_output_is_an_input_too() -> None:
    output = build_input(pulumi.Output.from_input(Access(tenant=True)))
    assert await output.future() == {"tenant": True}
