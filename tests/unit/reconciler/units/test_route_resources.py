"""Public units: what makes them impossible, what their routes say, and when the public can call them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import GPUUnitStatus, Phase, Reason
from reconciler.child_diff import UnitChild
from reconciler.guarded_writes import CreateObject, DeleteObject, ReplaceObject
from reconciler.units.observe import Observed
from reconciler.units.plan import Plan, UnitSettings, plan_unit
from reconciler.units.route_resources import Gateway, IngressClass, RouteSettings, find_route_wait
from reconciler.units.status import with_refused_route
from tests.support.builders import NOW, as_stored, make_stock, make_unit
from tests.unit.reconciler.units.observed import HTTP, SETTINGS, observe, ready_reason, with_child, with_written

INGRESS = RouteSettings(
    target=IngressClass("nginx"),
    domain="units.example.com",
    from_namespace="ingress-nginx",
    from_labels={"app": "controller"},
    annotations={"example.com/timeout": "1h"},
)
HTTP_ROUTE = RouteSettings(
    target=Gateway("gateways", "public", "https"),
    domain="units.example.com",
    from_namespace="gateways",
)
PUBLIC = {"primaryPort": "http", "public": True}
HOST = "demo-" + names.public_host("demo", "runtime-instance", "units.example.com").partition("-")[2]
TAKEN_UP = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}


def public_unit(**spec: Any) -> Json:
    return make_unit(**{"template": HTTP, "access": PUBLIC, **spec})


def with_routes(route: RouteSettings | None) -> UnitSettings:
    return replace(SETTINGS, route=route)


def plan(observed: Observed, route: RouteSettings | None = INGRESS) -> Plan:
    return plan_unit(observed, with_routes(route), NOW)


def created(result: Plan, kind: UnitChild) -> Json:
    [body] = [write.body for write in result.writes if isinstance(write, CreateObject) and write.kind is kind]
    return body


def running(status: Json, route: RouteSettings = INGRESS) -> Observed:
    """A public unit whose children are all there, and whose pod is ready; with this status of its route."""
    observed = observe(public_unit())
    planned = plan(observed, route)
    stored = as_stored(created(planned, route.kind))
    live = {**stored, "metadata": {**stored["metadata"], "generation": 1}, "status": status}
    settled = with_written(observed, planned, is_ready=True)
    return with_child(settled, route.kind, live)


def published(status: GPUUnitStatus) -> tuple[str, str, str]:
    condition = find_condition(status.conditions, "Published")
    assert condition is not None
    return condition.status, condition.reason, condition.message


def test_a_unit_is_private_unless_it_asks() -> None:
    kinds = {write.kind for write in plan(observe(make_unit(template=HTTP))).writes if isinstance(write, CreateObject)}

    assert kinds == {UnitChild.NETWORK_POLICY, UnitChild.SERVICE, UnitChild.DEPLOYMENT}


def test_the_ingress_names_host_class_service_and_what_the_controller_wants_to_be_told() -> None:
    ingress = created(plan(observe(public_unit())), UnitChild.INGRESS)

    backend = {"service": {"name": "unit-demo", "port": {"number": 8000}}}
    assert ingress["spec"] == {
        "ingressClassName": "nginx",
        "rules": [
            {"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}},
        ],
        "tls": [{"hosts": [HOST]}],
    }
    assert ingress["metadata"]["annotations"]["example.com/timeout"] == "1h"
    assert ingress["metadata"]["name"] == "unit-demo"


def test_without_tls_the_ingress_asks_for_none() -> None:
    plain = replace(INGRESS, scheme="http")

    assert "tls" not in created(plan(observe(public_unit()), plain), UnitChild.INGRESS)["spec"]


def test_the_http_route_hangs_on_the_gateway() -> None:
    route = created(plan(observe(public_unit()), HTTP_ROUTE), UnitChild.HTTP_ROUTE)

    assert route["spec"] == {
        "parentRefs": [{"namespace": "gateways", "name": "public", "sectionName": "https"}],
        "hostnames": [HOST],
        "rules": [{"backendRefs": [{"name": "unit-demo", "port": 8000}]}],
    }


def test_no_two_units_share_a_host_and_one_keeps_its_own() -> None:
    hosts = {
        names.public_host(unit, namespace, "example.com")
        for unit, namespace in (("a", "x-b"), ("a-b", "x"), ("a", "b-x"), ("b", "x"), ("a", "x"))
    }

    assert len(hosts) == 5
    assert names.public_host("a", "x", "example.com") in hosts


def test_the_longest_name_still_fits_into_a_label() -> None:
    host = names.public_host("a" * names.UNIT_NAME_LIMIT, "x", "example.com")

    assert len(host.partition(".")[0]) <= 63


def test_those_who_bring_the_calls_are_let_in_to_the_primary_port_only() -> None:
    two = {"ports": [*HTTP["ports"], {"name": "admin", "port": 9000}]}
    policy = created(plan(observe(public_unit(template=two))), UnitChild.NETWORK_POLICY)

    [proxy, public] = policy["spec"]["ingress"]
    assert [port["port"] for port in proxy["ports"]] == [8000, 9000]
    assert public == {
        "from": [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}},
                "podSelector": {"matchLabels": {"app": "controller"}},
            }
        ],
        "ports": [{"protocol": "TCP", "port": 8000}],
    }


def test_a_private_units_policy_lets_nobody_else_in() -> None:
    policy = created(plan(observe(make_unit(template=HTTP))), UnitChild.NETWORK_POLICY)

    assert len(policy["spec"]["ingress"]) == 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"template": {}, "access": {"public": True}}, "spec.access.public: the template has no ports"),
        ({"access": {**PUBLIC, "scheme": "https"}}, "only plain HTTP can be public"),
        ({"access": {**PUBLIC, "scheme": "tcp"}}, "only plain HTTP can be public"),
        ({"template": {"ports": [{"name": "http", "port": 53, "protocol": "UDP"}]}}, "only plain HTTP can be public"),
    ],
)
def test_what_cannot_be_public_says_why(spec: Json, words: str) -> None:
    result = plan(observe(public_unit(**spec)))

    assert result.writes == ()
    assert ready_reason(result) == (Phase.FAILED, Reason.ACCESS_CONFIG_INVALID)
    condition = find_condition(result.status.conditions, "Ready")
    assert condition is not None
    assert words in condition.message


def test_stock_is_never_public() -> None:
    stock = make_stock("host-0", template=HTTP, access=PUBLIC)

    writes = plan(observe(stock)).writes
    assert UnitChild.INGRESS not in {write.kind for write in writes if isinstance(write, CreateObject)}


def test_the_address_is_shown_once_the_controller_has_taken_up_the_ingress() -> None:
    waiting = plan(running({})).status
    assert waiting.public_url is None
    assert published(waiting) == (
        *("False", Reason.UNIT_NOT_PUBLISHED),
        "no ingress controller has taken up its Ingress yet",
    )

    there = plan(running(TAKEN_UP)).status
    assert there.public_url == f"https://{HOST}/"
    assert published(there)[:2] == ("True", Reason.UNIT_PUBLISHED)


def test_second_pass_over_an_unchanged_public_unit_writes_nothing() -> None:
    for route, status in ((INGRESS, TAKEN_UP), (HTTP_ROUTE, accepted())):
        observed = running(status, route)
        result = plan(observed, route)
        assert result.writes == ()

        stored = {**observed.unit, "status": result.status.to_json()}
        again = plan_unit(replace(observed, unit=stored), with_routes(route), NOW + timedelta(hours=1))
        assert again.writes == ()
        assert again.status.model_copy(update={"last_sync_time": NOW}) == result.status


def test_a_unit_that_does_not_run_has_no_public_address() -> None:
    observed = replace(running(TAKEN_UP), pods=())
    assert plan(observed).status.public_url is None
    assert published(plan(observed).status)[2] == "the unit is not ready yet"

    stopped = replace(running(TAKEN_UP), unit=public_unit(running=False), pods=())
    assert plan(stopped).status.public_url is None
    assert published(plan(stopped).status)[2] == "the unit is stopped"


@pytest.mark.parametrize("spec", [{"access": {"primaryPort": "http", "public": False}}, {"access": None}])
def test_who_becomes_private_again_loses_the_route_and_the_hole(spec: Json) -> None:
    result = plan(replace(running(TAKEN_UP), unit=public_unit(**spec)))

    assert [write.kind for write in result.writes if isinstance(write, DeleteObject)] == [UnitChild.INGRESS]
    [policy] = [write.body for write in result.writes if isinstance(write, ReplaceObject)]
    assert len(policy["spec"]["ingress"]) == 1
    assert result.status.public_url is None
    assert find_condition(result.status.conditions, "Published") is None


def test_another_kind_of_route_takes_the_old_one_away() -> None:
    result = plan(running(TAKEN_UP), HTTP_ROUTE)

    assert [write.kind for write in result.writes if isinstance(write, DeleteObject)] == [UnitChild.INGRESS]
    assert created(result, UnitChild.HTTP_ROUTE)


def test_another_annotation_in_the_settings_reaches_the_routes_and_the_old_one_goes() -> None:
    observed = running(TAKEN_UP)
    fields: Json = {"f:metadata": {"f:annotations": {".": {}, "f:example.com/timeout": {}}}}
    ours = {"manager": "gpu-platform-reconciler", "fieldsV1": fields}
    ingress = observed.children[UnitChild.INGRESS]
    metadata = ingress["metadata"]
    theirs = {**metadata["annotations"], "controller.example.com/seen": "yes"}
    live = {**ingress, "metadata": {**metadata, "annotations": theirs, "managedFields": [ours]}}
    assert plan(with_child(observed, UnitChild.INGRESS, live)).writes == ()

    other = replace(INGRESS, annotations={"example.com/size": "1g"})
    [write] = plan(with_child(observed, UnitChild.INGRESS, live), other).writes
    assert isinstance(write, ReplaceObject)
    annotations = write.body["metadata"]["annotations"]
    assert annotations.pop(names.ANNOTATION_FIELDS)
    assert annotations == {"example.com/size": "1g", "controller.example.com/seen": "yes"}


def test_where_no_routes_are_set_up_a_public_unit_runs_and_says_whom_to_ask() -> None:
    result = plan(replace(observe(public_unit()), pods=()), None)

    assert UnitChild.DEPLOYMENT in {write.kind for write in result.writes if isinstance(write, CreateObject)}
    assert published(result.status)[:2] == ("False", Reason.UNIT_NOT_PUBLISHED)
    assert "routeKind" in published(result.status)[2]


@pytest.mark.parametrize("running_", [True, False])
def test_routes_that_are_turned_off_go_from_the_units_that_had_one(running_: bool) -> None:
    observed = running(TAKEN_UP)
    result = plan(replace(observed, unit=public_unit(running=running_)), None)

    assert [write.kind for write in result.writes if isinstance(write, DeleteObject)] == [UnitChild.INGRESS]
    replaced = {write.kind: write.body for write in result.writes if isinstance(write, ReplaceObject)}
    assert len(replaced[UnitChild.NETWORK_POLICY]["spec"]["ingress"]) == 1
    assert (UnitChild.DEPLOYMENT in replaced) is not running_
    assert result.status.public_url is None


def test_who_becomes_private_again_loses_the_route_also_while_something_else_is_wrong() -> None:
    observed = replace(running(TAKEN_UP), catalogue=None)
    assert plan(observed).writes == ()

    result = plan(replace(observed, unit=public_unit(access=None)))
    assert result.writes == (DeleteObject(UnitChild.INGRESS, observed.children[UnitChild.INGRESS]),)
    assert ready_reason(result) == (Phase.FAILED, Reason.INVALID_SPEC)


def test_a_route_comes_after_everything_that_the_unit_needs_to_run() -> None:
    kinds = [write.kind for write in plan(observe(public_unit())).writes if isinstance(write, CreateObject)]

    assert kinds[-2:] == [UnitChild.DEPLOYMENT, UnitChild.INGRESS]


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        pytest.param(INGRESS, replace(INGRESS, scheme="http"), "tls", id="no more TLS"),
        pytest.param(
            HTTP_ROUTE, replace(HTTP_ROUTE, target=Gateway("gateways", "public")), "sectionName", id="all listeners"
        ),
    ],
)
def test_what_a_route_no_longer_says_is_taken_out_of_it(
    before: RouteSettings, after: RouteSettings, dropped: str
) -> None:
    observed = running(TAKEN_UP if before.kind is UnitChild.INGRESS else accepted(), before)
    result = plan(observed, after)

    [write] = result.writes
    assert isinstance(write, ReplaceObject)
    assert dropped in str(observed.children[before.kind]["spec"])
    assert dropped not in str(write.body["spec"])
    assert published(result.status)[2] == f"its {before.kind} is being changed"
    assert result.status.public_url is None


def test_a_unit_without_ports_lets_nobody_in_any_more() -> None:
    result = plan(replace(running(TAKEN_UP), unit=public_unit(template={}, access=None)))

    [policy] = [
        write.body
        for write in result.writes
        if isinstance(write, ReplaceObject) and write.kind is UnitChild.NETWORK_POLICY
    ]
    assert "ingress" not in policy["spec"]


def test_another_domain_is_shown_only_when_the_route_has_it() -> None:
    result = plan(running(TAKEN_UP), replace(INGRESS, domain="other.example.com"))

    assert result.status.public_url is None
    assert published(result.status)[2] == "its Ingress is being changed"


def test_a_refused_route_leaves_the_rest_of_the_status_as_it_is() -> None:
    observed = running(TAKEN_UP)
    before = plan(observed).status
    after = with_refused_route(before, observed, "the webhook is away", NOW)

    assert published(after) == ("False", Reason.UNIT_ROUTE_SYNC_FAILED, "the webhook is away")
    assert (after.phase, after.access_url, after.public_url) == (Phase.READY, before.access_url, None)
    assert [condition.type for condition in after.conditions] == ["Ready", "Published"]


def accepted(**changes: Any) -> Json:
    conditions = [{"type": kind, "status": "True", "reason": kind} for kind in ("Accepted", "ResolvedRefs")]
    said = [{**each, "observedGeneration": 1, **changes.get(each["type"], {})} for each in conditions]
    return {"parents": [{"conditions": said}]}


REFUSED = {"status": "False", "reason": "NotAllowedByListeners", "message": "not from this namespace"}


@pytest.mark.parametrize(
    ("route", "status", "wait"),
    [
        (INGRESS, None, "its Ingress is not made yet"),
        (HTTP_ROUTE, None, "its HTTPRoute is not made yet"),
        (INGRESS, {}, "no ingress controller has taken up its Ingress yet"),
        (INGRESS, {"loadBalancer": {}}, "no ingress controller has taken up its Ingress yet"),
        (INGRESS, TAKEN_UP, None),
        (HTTP_ROUTE, {}, "no gateway has taken up its HTTPRoute yet"),
        (HTTP_ROUTE, accepted(), None),
        (
            HTTP_ROUTE,
            accepted(Accepted=REFUSED),
            "the gateway says NotAllowedByListeners: not from this namespace",
        ),
        (
            HTTP_ROUTE,
            accepted(ResolvedRefs={"status": "False", "reason": "BackendNotFound"}),
            "the gateway says BackendNotFound: no more than that",
        ),
        (
            HTTP_ROUTE,
            accepted(Accepted={"observedGeneration": 0}),
            "the gateway has not looked at its HTTPRoute yet",
        ),
        (HTTP_ROUTE, {"parents": [{"conditions": []}]}, "the gateway has not looked at its HTTPRoute yet"),
        (
            HTTP_ROUTE,
            {"parents": [*accepted(Accepted=REFUSED)["parents"], *accepted()["parents"]]},
            None,
        ),
    ],
)
def test_the_table_of_find_route_wait(route: RouteSettings, status: Json | None, wait: str | None) -> None:
    live = running(status or {}, route).children[route.kind]
    desired = {**live, "metadata": {key: live["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}}

    assert find_route_wait(desired, None if status is None else live) == wait


def test_a_route_on_its_way_out_is_none() -> None:
    live = running(TAKEN_UP).children[UnitChild.INGRESS]
    leaving = {**live, "metadata": {**live["metadata"], "deletionTimestamp": "2030-01-01T00:00:00Z"}}

    assert find_route_wait(live, leaving) == "its Ingress is not made yet"
