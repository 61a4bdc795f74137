"""What processes may do: how rules are written, and what Roles they come to."""

import dataclasses
from itertools import chain
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.rbac import UNIT_SCOPES, Rule, Scope
from infra.components.access import Account, build_roles, rules_in
from platform_api.rbac import RULES as API_RULES
from reconciler.rbac import CONTROLLER_RULES, rules_of
from reconciler.settings import ReconcilerSettings

RECONCILER_RULES = rules_of(CONTROLLER_RULES)
RULE = Rule((Scope.STOCK,), "apps", ("deployments",), ("get",))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"verbs": ("*",)}, "has no '*'"),
        ({"resources": ("*",)}, "has no '*'"),
        ({"resources": ("deployments/*",)}, "has no '*'"),
        ({"group": "*"}, "has no '*'"),
        ({"verbs": ()}, "grants nothing"),
        ({"scopes": ()}, "grants nothing"),
        ({"verbs": ("create",), "names": ("one",)}, "with names can only have"),
        ({"verbs": ("list",), "names": ("one",)}, "with names can only have"),
        ({"group": "", "resources": ("secrets",)}, "about secrets names each of them"),
        ({"group": "", "resources": ("secrets",), "scopes": UNIT_SCOPES}, "about secrets names each of them"),
        (
            {"group": "", "resources": ("secrets",), "scopes": (Scope.TENANTS,), "verbs": ("get", "list")},
            "about secrets names each of them",
        ),
    ],
)
def test_a_rule_that_says_too_much_or_nothing_cannot_be_written(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        dataclasses.replace(RULE, **change)


def test_every_controller_declares_its_rights() -> None:
    assert tuple(CONTROLLER_RULES) == ReconcilerSettings().controllers


def test_a_reconciler_of_one_controller_has_the_rights_of_that_one() -> None:
    stock = rules_of(["stock"])

    assert {"gpuunits", "leases"} <= {resource for rule in stock for resource in rule.resources}
    assert not any("deployments" in rule.resources and "create" in rule.verbs for rule in stock)


@pytest.mark.parametrize("rules", [API_RULES, RECONCILER_RULES])
def test_nobody_writes_outside_the_platforms_namespaces(rules: tuple[Rule, ...]) -> None:
    """Whoever may make pods in a namespace may use every Secret and ServiceAccount there. But a storage's finalizer is
    given up also where the rights of a tenant are gone already."""
    everywhere = [rule for rule in rules if Scope.CLUSTER in rule.scopes and rule.resources != ("gpuspecs",)]
    writes = {(rule.resources, verb) for rule in everywhere for verb in set(rule.verbs) - {"get", "list", "watch"}}

    assert writes <= {(("gpustorages",), "patch"), (("gpustorages",), "manage")}


@pytest.mark.parametrize("rules", [API_RULES, RECONCILER_RULES])
def test_what_opens_more_doors_is_granted_to_nobody(rules: tuple[Rule, ...]) -> None:
    dangerous = {"pods/exec", "pods/attach", "serviceaccounts/token", "roles", "clusterroles", "rolebindings"}

    assert dangerous.isdisjoint(chain.from_iterable(rule.resources for rule in rules))
    unnamed = [rule for rule in rules if "secrets" in rule.resources and not rule.names]
    assert all(rule.scopes == (Scope.TENANTS,) for rule in unnamed)
    assert {verb for rule in unnamed for verb in rule.verbs} <= {"get", "create", "update", "delete"}


def test_rules_about_the_same_things_become_one() -> None:
    rules = (
        Rule((Scope.STOCK,), "apps", ("deployments",), ("get",)),
        Rule(UNIT_SCOPES, "apps", ("deployments",), ("delete", "get")),
        Rule((Scope.STOCK,), "apps", ("replicasets",), ("get", "delete")),
        Rule((Scope.STOCK,), "", ("secrets",), ("get",), names=("one",)),
        Rule((Scope.TENANTS,), "", ("pods",), ("list",)),
    )

    assert rules_in(rules, Scope.STOCK) == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["one"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["delete", "get"]},
    ]


def test_tenants_rights_are_bound_in_each_tenants_namespace_alone() -> None:
    account = Account("worker", (Rule((Scope.TENANTS,), "", ("pods",), ("list",)),))

    roles = build_roles(account, ["runtime-instance", "runtime-instance-acme"])

    assert [(role["kind"], role["metadata"]["name"], role["metadata"].get("namespace")) for role in roles] == [
        ("ClusterRole", "worker-tenant", None),
        ("RoleBinding", "worker", "runtime-instance"),
        ("RoleBinding", "worker", "runtime-instance-acme"),
    ]
    subjects = [{"kind": "ServiceAccount", "name": "worker", "namespace": names.SYSTEM_NAMESPACE}]
    assert all(role["subjects"] == subjects for role in roles[1:])


def test_a_scope_without_rules_has_no_role() -> None:
    assert build_roles(Account("idle", ()), ["runtime-instance"]) == ()
