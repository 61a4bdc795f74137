"""Which right a request in the audit log uses, and which rights are left over."""

from typing import Any

import pytest

from gpu_platform.domain.access import API_ACCOUNT, Scope, account_user
from gpu_platform.domain.names import GROUP, STOCK_NAMESPACE
from tests.support.rbac_usage import Right, Try, find_missed, list_declared, list_unused, read_try, read_usage

TENANT = "runtime-instance-acme"
WIDE = Right(API_ACCOUNT, Scope.CLUSTER, GROUP, "gpuunits", "list")
NARROW = Right(API_ACCOUNT, Scope.TENANTS, GROUP, "gpuunits", "list")
CLAIM = Right(API_ACCOUNT, Scope.STOCK, GROUP, "gpuunits", "patch")
MANAGE = Right(API_ACCOUNT, Scope.STOCK, GROUP, "gpuunits", "manage")
END = Right(API_ACCOUNT, Scope.TENANTS, GROUP, "operations/status", "patch")
MANAGE_OPERATIONS = Right(API_ACCOUNT, Scope.TENANTS, GROUP, "operations", "manage")


def event(verb: str, namespace: str | None, resource: str, *, decision: str = "allow", **fields: Any) -> dict[str, Any]:
    kind, _, part = resource.partition("/")
    target = {"apiGroup": GROUP, "resource": kind, "namespace": namespace, "subresource": part}
    return {
        "verb": verb,
        "user": {"username": account_user(API_ACCOUNT)},
        "objectRef": {key: value for key, value in target.items() if value},
        "annotations": {"authorization.k8s.io/decision": decision},
        **fields,
    }


@pytest.mark.parametrize(
    ("request_seen", "used"),
    [
        (event("list", None, "gpuunits"), {WIDE}),
        (event("list", TENANT, "gpuunits"), {WIDE}),
        (event("patch", STOCK_NAMESPACE, "gpuunits"), {CLAIM, MANAGE}),
        (event("patch", TENANT, "operations/status"), {END, MANAGE_OPERATIONS}),
        (event("patch", TENANT, "operations/status", decision="forbid"), set()),
        (event("list", TENANT, "gpuunits", user={"username": "admin"}), set()),
        (event("get", None, "gpuunits", objectRef=None), set()),
    ],
)
def test_a_request_uses_the_widest_right_that_allows_it(request_seen: dict[str, Any], used: set[Right]) -> None:
    assert set(read_usage(request_seen, {WIDE, NARROW, CLAIM, MANAGE, END, MANAGE_OPERATIONS})) == used


@pytest.mark.parametrize(
    ("namespace", "asked", "missed"),
    [
        (STOCK_NAMESPACE, ["allow", "forbid", "allow"], True),
        (STOCK_NAMESPACE, ["forbid", "allow", "allow"], False),
        (STOCK_NAMESPACE, ["allow", "allow", "forbid"], False),
        (STOCK_NAMESPACE, ["forbid", "forbid", "forbid"], False),
        (TENANT, ["allow", "forbid", "allow"], False),
    ],
)
def test_a_request_that_was_refused_while_the_role_held_misses_a_right(
    namespace: str, asked: list[str], missed: bool
) -> None:
    tries: list[Try] = []
    for second, decision in enumerate(asked):
        verb = "patch" if decision == "allow" else "update"
        seen = event(verb, namespace, "gpuunits", decision=decision, requestReceivedTimestamp=f"12:00:0{second}")
        tries += read_try(seen, read_usage(seen, {CLAIM, MANAGE}))
    found = {Right(API_ACCOUNT, Scope.STOCK, GROUP, "gpuunits", "update")} if missed else set()
    assert set(find_missed(tries)) == found


def test_what_a_role_of_the_cluster_allows_does_not_show_that_another_role_holds() -> None:
    tries: list[Try] = []
    for second, decision in enumerate(["allow", "forbid", "allow"]):
        verb = "list" if decision == "allow" else "patch"
        seen = event(verb, STOCK_NAMESPACE, "gpuunits", decision=decision, requestReceivedTimestamp=f"12:00:0{second}")
        tries += read_try(seen, read_usage(seen, {WIDE, CLAIM}))
    assert not list(find_missed(tries))


def test_what_no_request_used_is_listed_but_for_what_no_request_can_show() -> None:
    declared = set(list_declared())
    unused = list_unused(declared - {WIDE})
    assert unused == (WIDE,)
    assert any(right.resource.endswith("/finalizers") for right in declared)
    assert not any(right.resource.endswith("/finalizers") for right in list_unused(()))
