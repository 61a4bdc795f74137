"""Every route has its lock, and this table knows all of them: a new one has to be written down here."""

from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from gpu_platform.domain.tenants import Role
from platform_api.app import ROUTERS
from platform_api.auth.access import Requires, Writes
from platform_api.proxy.endpoints import METHODS, READING_METHODS

UNITS = "/api/v1/gpu-units"
STORAGES = "/api/v1/gpu-storages"
FUNCTIONS = "/api/v1/serverless/functions"
SERVERLESS = "/api/v1/serverless"
INVOCATIONS = f"{SERVERLESS}/invocations"
OPERATOR = "/api/v1/operator"

OPEN = {"/api/v1/health", "/openapi.json", "/docs", "/swagger/index.html"} | {
    "/docs/assets/start.js",
    "/docs/assets/{name}",
}

VIEWERS, INVOKERS = frozenset({Role.VIEWER}), frozenset({Role.INVOKER})
EDITORS, OPERATORS = frozenset({Role.EDITOR}), frozenset({Role.OPERATOR})

LOCKED = {
    ("POST", UNITS): EDITORS,
    ("GET", UNITS): VIEWERS,
    ("GET", f"{UNITS}/{{name}}"): VIEWERS,
    ("PUT", f"{UNITS}/{{name}}"): EDITORS,
    ("DELETE", f"{UNITS}/{{name}}"): EDITORS,
    ("POST", f"{UNITS}/{{name}}/stop"): EDITORS,
    ("POST", f"{UNITS}/{{name}}/start"): EDITORS,
    ("POST", f"{UNITS}/{{name}}/restart"): EDITORS,
    ("GET", f"{UNITS}/{{name}}/events"): VIEWERS,
    ("GET", f"{UNITS}/{{name}}/logs"): VIEWERS,
    ("GET", f"{UNITS}/{{name}}/address"): VIEWERS,
    ("GET", f"{UNITS}/{{name}}/metrics"): VIEWERS,
    ("GET", f"{UNITS}/{{name}}/stack"): VIEWERS,
    ("POST", f"{UNITS}/{{name}}/preview"): EDITORS,
    ("GET", f"{UNITS}/{{name}}/previews/{{operationID:path}}"): VIEWERS,
    **{(method, f"{UNITS}/{{name}}/proxy/{{port}}/{{path:rest}}"): EDITORS for method in METHODS},
    ("POST", STORAGES): EDITORS,
    ("GET", STORAGES): VIEWERS,
    ("GET", f"{STORAGES}/{{name}}"): VIEWERS,
    ("PUT", f"{STORAGES}/{{name}}"): EDITORS,
    ("POST", f"{STORAGES}/{{name}}/recover"): EDITORS,
    ("DELETE", f"{STORAGES}/{{name}}"): EDITORS,
    ("GET", f"{STORAGES}/{{name}}/events"): VIEWERS,
    ("GET", f"{STORAGES}/{{name}}/logs"): VIEWERS,
    ("GET", f"{STORAGES}/{{name}}/stack"): VIEWERS,
    **{(method, f"{STORAGES}/{{name}}/proxy/{{path:rest}}"): VIEWERS for method in READING_METHODS},
    ("POST", FUNCTIONS): EDITORS,
    ("GET", FUNCTIONS): VIEWERS,
    ("GET", f"{FUNCTIONS}/{{name}}"): VIEWERS,
    ("PUT", f"{FUNCTIONS}/{{name}}"): EDITORS,
    ("DELETE", f"{FUNCTIONS}/{{name}}"): EDITORS,
    ("GET", f"{FUNCTIONS}/{{name}}/logs"): VIEWERS,
    ("GET", f"{FUNCTIONS}/{{name}}/stack"): VIEWERS,
    ("GET", f"{FUNCTIONS}/{{name}}/health"): VIEWERS,
    ("POST", f"{OPERATOR}/stock-units"): OPERATORS,
    ("GET", f"{OPERATOR}/stock-units"): OPERATORS,
    ("DELETE", f"{OPERATOR}/stock-units/{{name}}"): OPERATORS,
    ("POST", f"{OPERATOR}/stockpools"): OPERATORS,
    ("GET", f"{OPERATOR}/stockpools"): OPERATORS,
    ("GET", f"{OPERATOR}/stockpools/{{name}}"): OPERATORS,
    ("GET", f"{OPERATOR}/stockpools/{{name}}/stack"): OPERATORS,
    ("PUT", f"{OPERATOR}/stockpools/{{name}}"): OPERATORS,
    ("DELETE", f"{OPERATOR}/stockpools/{{name}}"): OPERATORS,
    ("GET", f"{OPERATOR}/jobs"): OPERATORS,
    ("GET", f"{OPERATOR}/jobs/{{operationID:path}}"): OPERATORS,
    ("GET", f"{OPERATOR}/drift"): OPERATORS,
    ("GET", f"{OPERATOR}/inventory"): OPERATORS,
    ("GET", f"{OPERATOR}/specs"): VIEWERS | OPERATORS,
    ("GET", f"{OPERATOR}/specs/{{name}}"): VIEWERS | OPERATORS,
    ("POST", INVOCATIONS): INVOKERS,
    ("GET", INVOCATIONS): VIEWERS | INVOKERS,
    ("GET", f"{INVOCATIONS}/{{invocationID}}"): VIEWERS | INVOKERS,
    ("DELETE", f"{INVOCATIONS}/{{invocationID}}"): INVOKERS,
    ("POST", f"{INVOCATIONS}/{{invocationID}}/cancel"): INVOKERS,
    ("POST", f"{INVOCATIONS}/{{invocationID}}/retry"): INVOKERS,
    ("GET", f"{SERVERLESS}/dead-letters"): VIEWERS | INVOKERS,
    ("POST", f"{SERVERLESS}/dead-letters/redrive"): EDITORS,
    ("DELETE", f"{SERVERLESS}/functions/{{name}}/queue"): EDITORS,
}


WRITING = {
    *(
        (method, path)
        for path in (UNITS, STORAGES, FUNCTIONS)
        for method, path in [("POST", path), ("PUT", f"{path}/{{name}}")]
    ),
    *(("POST", f"{UNITS}/{{name}}/{act}") for act in ("stop", "start", "restart", "preview")),
    ("POST", f"{STORAGES}/{{name}}/recover"),
}
"""Routes by which a tenant makes Kubernetes store something, but for deletions."""


def routes() -> Iterator[tuple[str, APIRoute]]:
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            assert route.methods is not None
            for method in route.methods:
                yield method, route


def locks(route: APIRoute) -> list[Requires]:
    calls = [dependency.call for dependency in route.dependant.dependencies]
    return [call for call in calls if isinstance(call, Requires)]


def test_every_route_is_in_the_table_or_open() -> None:
    assert {(method, route.path) for method, route in routes()} == set(LOCKED) | {("GET", path) for path in OPEN}


@pytest.mark.parametrize(
    ("method", "route"), list(routes()), ids=[f"{method} {route.path}" for method, route in routes()]
)
def test_a_route_lets_in_whom_the_table_says(method: str, route: APIRoute) -> None:
    expected = [] if route.path in OPEN else [LOCKED[method, route.path]]
    assert [lock.roles for lock in locks(route)] == expected


def test_the_routes_that_write_to_kubernetes_are_limited_by_what_they_write() -> None:
    limited = {
        (method, route.path) for method, route in routes() if any(isinstance(each, Writes) for each in locks(route))
    }
    assert limited == WRITING


def test_the_lock_is_looked_at_before_anything_else() -> None:
    """Otherwise a stranger could learn from a refusal what is there, or make us read a body."""
    for _, route in routes():
        if route.path not in OPEN:
            assert isinstance(route.dependant.dependencies[0].call, Requires), route.path
