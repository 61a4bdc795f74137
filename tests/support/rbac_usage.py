"""Which rights of the platform's processes are used, and which they miss: declared rules compared with the API server's
audit log.

A right is (account, scope, group, resource, verb). A request counts for the widest right that allows it: beside a right
in the whole cluster, the same one in some namespaces is of no use.

| the audit log has                                                | used                                        |
| ---------------------------------------------------------------- | ------------------------------------------- |
| an allowed request of an account of ours                         | the right of its verb                       |
| one that writes a custom resource of ours, or a status of it     | also the right to `manage` that resource    |
| a refused request, or one of another user                        | nothing                                     |

A refused request misses a right when no rule declares it. A declared one is refused while the API server has not read
the roles yet, before the bootstrap binds them, and once a tenant's namespace has lost them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import GROUP, STOCK_NAMESPACE, SYSTEM_NAMESPACE
from gpu_platform.domain.rbac import (
    API_ACCOUNT,
    MANAGE,
    RECONCILER_ACCOUNT,
    STACK_WORKER_ACCOUNT,
    Rule,
    Scope,
    account_user,
)
from platform_api.rbac import RULES as API_RULES
from reconciler.rbac import CONTROLLER_RULES, rules_of
from stacks.worker.rbac import RULES as STACK_WORKER_RULES

DECLARED: Mapping[str, tuple[Rule, ...]] = {
    API_ACCOUNT: API_RULES,
    RECONCILER_ACCOUNT: rules_of(CONTROLLER_RULES),
    STACK_WORKER_ACCOUNT: STACK_WORKER_RULES,
}
USERS = {account_user(account): account for account in DECLARED}
WRITES = ("create", "update", "patch", "delete")
UNSEEN = "/finalizers"
"""No request names this subresource: some clusters ask for the right to it when an owner reference is written."""

CACHE_KEY = "rbac/{}"


class Right(NamedTuple):
    account: str
    scope: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.account:<26} {self.scope:<8} {self.verb:<7} {self.resource}{self.group and f'.{self.group}'}"


seen: set[Right] = set()
"""Of the clusters that this process has started and stopped."""

missed: set[Right] = set()
"""Of the same clusters."""


def list_declared() -> Iterator[Right]:
    for account, rules in DECLARED.items():
        for rule in rules:
            for scope in rule.scopes:
                for resource in rule.resources:
                    for verb in rule.verbs:
                        yield Right(account, scope, rule.group, resource, verb)


def list_unused(used: Iterable[Right]) -> tuple[Right, ...]:
    return tuple(sorted({right for right in list_declared() if UNSEEN not in right.resource} - set(used)))


def note_usage(logs: Path) -> None:
    """Reads the audit log of a cluster that is about to be removed, with its earlier files."""
    declared = set(list_declared())
    for path in logs.glob("audit*.log"):
        with path.open() as log:
            for event in (json.loads(line) for line in log if line.endswith("\n")):
                seen.update(read_usage(event, declared))
                missed.update(read_missed(event, declared))


def read_usage(event: Json, declared: set[Right]) -> Iterator[Right]:
    account, target = _find_request(event, "allow")
    if account is None:
        return
    group, verb = target.get("apiGroup", ""), event["verb"]
    asked = [(_resource(target), verb)]
    if group == GROUP and verb in WRITES:
        asked.append((target["resource"], MANAGE))
    for each, how in asked:
        rights = (Right(account, scope, group, each, how) for scope in scopes_of(target.get("namespace")))
        yield from [right for right in rights if right in declared][:1]


def read_missed(event: Json, declared: set[Right]) -> Iterator[Right]:
    account, target = _find_request(event, "forbid")
    if account is None:
        return
    scopes = scopes_of(target.get("namespace"))
    rights = [Right(account, scope, target.get("apiGroup", ""), _resource(target), event["verb"]) for scope in scopes]
    if declared.isdisjoint(rights):
        yield rights[-1]


def scopes_of(namespace: str | None) -> tuple[Scope, ...]:
    """The scopes whose rules hold there, the widest first."""
    if namespace is None:
        return (Scope.CLUSTER,)
    own = {SYSTEM_NAMESPACE: Scope.SYSTEM, STOCK_NAMESPACE: Scope.STOCK}.get(namespace, Scope.TENANTS)
    return (Scope.CLUSTER, own)


def _find_request(event: Json, decision: str) -> tuple[str | None, Json]:
    """The account of ours that sent it, and what it is about; None for another one, and for another decision."""
    is_decided = event.get("annotations", {}).get("authorization.k8s.io/decision") == decision
    target = event.get("objectRef")
    return (USERS.get(event["user"]["username"]), target) if is_decided and target else (None, {})


def _resource(target: Json) -> str:
    return "/".join(filter(None, (target["resource"], target.get("subresource"))))
