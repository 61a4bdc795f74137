"""Which inputs a resource takes, what it says about the others, and in what form it keeps them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import GPUUnitSpec
from gpu_platform.pulumi_protocol.properties import UNKNOWN
from providers.cluster.inputs import check_inputs, normalise_spec
from providers.cluster.kinds import KINDS, Kind
from providers.cluster.resources import GPU_FUNCTION, GPU_SPEC, GPU_STORAGE, GPU_UNIT, STOCK_POOL

UNIT, STORAGE, FUNCTION, POOL, SPEC = (
    KINDS[token] for token in (GPU_UNIT, GPU_STORAGE, GPU_FUNCTION, STOCK_POOL, GPU_SPEC)
)
PORT = {"name": "web", "port": 80}


def unit(**spec: Any) -> Json:
    return {"name": "web", "spec": {"specName": "g1.1", "image": "example/web", **spec}}


def storage(**spec: Any) -> Json:
    return {"name": "weights", "spec": {"size": "1Gi", **spec}}


def failures_of(kind: Kind, news: Json) -> dict[str, str]:
    return {each.property: each.reason for each in check_inputs(kind, news).failures}


def test_what_is_left_out_is_kept_as_its_default() -> None:
    checked = check_inputs(UNIT, unit())

    assert checked.failures == ()
    assert checked.inputs["tenant"] == "default"
    assert checked.inputs["spec"] == GPUUnitSpec(spec_name="g1.1", image="example/web").to_json()


def test_what_is_said_as_its_default_makes_no_difference() -> None:
    said = unit(running=True, restarts=0, template={"command": [], "ports": []}, memory=None)

    assert (
        check_inputs(UNIT, {**said, "tenant": "default", "operationID": ""}).inputs == check_inputs(UNIT, unit()).inputs
    )


SHORT_NAME = "should be 1 to 40 lower-case letters, digits and inner hyphens"
STOCK: Json = {"specName": "a", "replicas": 1}
OUTSIDE: Json = {"requestID": "words", "framework": {"socketPath": "/tmp/serverless-framework/.."}}
SIZE: Json = {"memory": "1Gi", "gpu": 1}


@pytest.mark.parametrize(
    ("kind", "news", "place", "reason"),
    [
        (UNIT, {"spec": {"specName": "a"}}, "name", "is required"),
        (UNIT, {"name": "web"}, "spec", "is required"),
        (UNIT, {"name": "web", "spec": []}, "spec", "should be a map, as the spec of a GPUUnit"),
        (UNIT, {**unit(), "name": "Web"}, "name", SHORT_NAME),
        (UNIT, {**unit(), "name": "a" * 41}, "name", SHORT_NAME),
        (UNIT, {**unit(), "tenant": "-"}, "tenant", "should be the name of a tenant"),
        (UNIT, {**unit(), "size": 3}, "size", "is not an input; there are tenant, name, spec"),
        (UNIT, {**unit(), "requestHash": "x"}, "requestHash", "should be a SHA-256 in 64 hexadecimal digits"),
        (UNIT, unit(colour="red"), "spec.colour", "is not a field that is known here"),
        (UNIT, unit(restarts="1"), "spec.restarts", "should be a valid integer"),
        (UNIT, unit(template={"ports": [{"name": "web", "port": 99_999}]}), "spec.template.ports[0].port", "65535"),
        (UNIT, unit(template={"ports": [PORT, PORT]}), "spec.template.ports[1].name", "'web' is there twice"),
        (UNIT, unit(access={"primaryPort": "web"}), "spec.access.primaryPort", "'web' is no port of the template"),
        (UNIT, unit(memory="lots"), "spec.memory", "'lots' is not a quantity; write it like 16Gi, 500m or 2"),
        (UNIT, unit(serverless=OUTSIDE), "spec.serverless.framework.socketPath", "should name a file"),
        (UNIT, unit(storageMounts=[{"name": "a", "mountPath": "b"}]), "spec.storageMounts[0].mountPath", "absolute"),
        (STORAGE, {**storage(), "name": "a.b"}, "name", SHORT_NAME),
        (STORAGE, storage(size="many"), "spec.size", "'many' is not a quantity"),
        (STORAGE, storage(size="0"), "spec.size", "must be more than zero"),
        (STORAGE, storage(prepare={"fromImage": "a"}), "spec.prepare.command", "what `fromImage` is to run"),
        (STORAGE, storage(accessor={"on": True}), "spec.accessor.on", "is not a field that is known here"),
        (FUNCTION, {**unit(), "name": "a" * 31}, "name", "should be 1 to 30 lower-case letters"),
        (FUNCTION, unit(minWorkers=2), "spec.minWorkers", "2 is more than 1"),
        (FUNCTION, unit(ackWaitSeconds=1), "spec.ackWaitSeconds", "3"),
        (FUNCTION, unit(running=True), "spec.running", "is not a field that is known here"),
        (POOL, {"name": "a.b", "spec": STOCK}, "name", SHORT_NAME),
        (POOL, {"name": "a", "spec": {"specName": "a"}}, "spec.replicas", "is required"),
        (POOL, {"name": "a", "tenant": "b", "spec": STOCK}, "tenant", "is not an input; there are name, spec"),
        (SPEC, {"name": "g1/1", "spec": SIZE}, "name", "lower-case letters, digits and inner hyphens and dots"),
        (SPEC, {"name": "g1.1", "spec": {**SIZE, "memory": "0"}}, "spec.memory", "'0' must be more than zero"),
    ],
)
def test_a_wrong_input_is_named_with_what_is_right(kind: Kind, news: Json, place: str, reason: str) -> None:
    failures = failures_of(kind, news)

    assert list(failures) == [place]
    assert reason in failures[place]


def test_all_wrong_fields_are_named_at_once() -> None:
    assert set(failures_of(UNIT, {"spec": {"gpu": -1}})) == {"name", "spec.specName", "spec.gpu"}


@pytest.mark.parametrize(
    "news",
    [
        {"tenant": UNKNOWN, "name": UNKNOWN, "spec": UNKNOWN, "operationID": UNKNOWN, "requestHash": UNKNOWN},
        unit(image=UNKNOWN, gpu=UNKNOWN, running=UNKNOWN),
        unit(template={"ports": [{"name": "web", "port": UNKNOWN}], "envs": UNKNOWN}),
        unit(template=UNKNOWN, access=UNKNOWN),
        {"name": "web", "spec": {"specName": UNKNOWN}},
    ],
)
def test_what_only_the_update_will_know_is_allowed(news: Json) -> None:
    assert check_inputs(UNIT, news).failures == ()


def test_what_is_known_beside_an_unknown_is_checked_all_the_same() -> None:
    news = unit(image=UNKNOWN, colour=UNKNOWN, template={"ports": [{"name": "web", "port": 0}]})

    assert set(failures_of(UNIT, news)) == {"spec.colour", "spec.template.ports[0].port"}


def test_an_unknown_hides_no_default_beside_it() -> None:
    kept = check_inputs(UNIT, unit(image=UNKNOWN, template={"ports": [PORT]})).inputs["spec"]

    assert kept["image"] is UNKNOWN
    known = check_inputs(UNIT, unit(template={"ports": [PORT]})).inputs["spec"]
    assert {**kept, "image": "example/web"} == known


SPECS = st.fixed_dictionaries(
    {"specName": st.just("g1.1")},
    optional={
        "image": st.just("example/web"),
        "gpu": st.integers(0, 8),
        "running": st.booleans(),
        "access": st.fixed_dictionaries({}, optional={"scheme": st.just("https")}),
        "template": st.fixed_dictionaries(
            {},
            optional={
                "args": st.lists(st.just("x"), max_size=2),
                "ports": st.just([PORT]),
                "envs": st.lists(st.fixed_dictionaries({"name": st.just("A")}), max_size=1),
                "probes": st.just({"readiness": {"http": {"port": "web"}}}),
            },
        ),
    },
)


@settings(max_examples=60, deadline=None)
@given(SPECS)
def test_around_an_unknown_a_spec_is_kept_as_without_it(spec: Json) -> None:
    around = normalise_spec(UNIT, {**spec, "memory": UNKNOWN})

    assert around.pop("memory") is UNKNOWN
    assert around == GPUUnitSpec.model_validate(spec).to_json()
