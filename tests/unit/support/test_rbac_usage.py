"""Which right a request in the audit log uses, and which rights are left over."""

from typing import Any

import pytest

from gpu_platform.domain.names import GROUP, STOCK_NAMESPACE
from gpu_platform.domain.rbac import API_ACCOUNT, Scope, account_user
from tests.support.rbac_usage import Right, list_declared, list_unused, read_missed, read_usage

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
    ("request_seen", "missed"),
    [
        (event("update", STOCK_NAMESPACE, "gpuunits", decision="forbid"), {CLAIM._replace(verb="update")}),
        (event("patch", TENANT, "gpuunits", decision="forbid"), {NARROW._replace(verb="patch")}),
        (event("update", None, "gpuunits", decision="forbid"), {WIDE._replace(verb="update")}),
        # Declared: the API server has not read the roles yet, or the namespace has lost them.
        (event("patch", STOCK_NAMESPACE, "gpuunits", decision="forbid"), set()),
        (event("list", STOCK_NAMESPACE, "gpuunits", decision="forbid"), set()),
        (event("update", STOCK_NAMESPACE, "gpuunits"), set()),
        (event("update", TENANT, "gpuunits", decision="forbid", user={"username": "admin"}), set()),
    ],
)
def test_a_refused_request_misses_a_right_that_no_rule_declares(
    request_seen: dict[str, Any], missed: set[Right]
) -> None:
    assert set(read_missed(request_seen, {WIDE, CLAIM, MANAGE})) == missed


def test_what_no_request_used_is_listed_but_for_what_no_request_can_show() -> None:
    declared = set(list_declared())
    unused = list_unused(declared - {WIDE})
    assert unused == (WIDE,)
    assert any(right.resource.endswith("/finalizers") for right in declared)
    assert not any(right.resource.endswith("/finalizers") for right in list_unused(()))
