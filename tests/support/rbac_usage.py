"""Which rights of the platform's processes are used, and which they miss: declared rules compared with the API server's
audit log.

A right is (account, scope, group, resource, verb). A request counts for the widest right that allows it: beside a right
in the whole cluster, the same one in some namespaces is of no use.

| the audit log has                                                | used                                        |
| ---------------------------------------------------------------- | ------------------------------------------- |
| an allowed request of an account of ours                         | the right of its verb                       |
| one that writes a custom resource of ours, or a status of it     | also the right to `manage` that resource    |
| a refused request, or one of another user                        | nothing                                     |

A refused request misses a right when a role of the account held there both before and after it:

| refused                                                               | misses a right |
| --------------------------------------------------------------------- | -------------- |
| between two requests that a role in the same place allowed            | yes            |
| before the first of them: the bootstrap has not bound the role yet    | no             |
| after the last of them: the role is deleted, or the run ends          | no             |
| in the namespace of a test's tenant: its bindings end with it         | no             |
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpu_platform.domain.access import (
    API_ACCOUNT,
    MANAGE,
    RECONCILER_ACCOUNT,
    STACK_WORKER_ACCOUNT,
    Rule,
    Scope,
    account_user,
)
from gpu_platform.domain.names import DEFAULT_INSTANCE_NAMESPACE, GROUP, STOCK_NAMESPACE, SYSTEM_NAMESPACE
from platform_api.rules import RULES as API_RULES
from reconciler.rules import CONTROLLER_RULES, rules_of
from stacks.worker.rules import RULES as STACK_WORKER_RULES

Json = dict[str, Any]

DECLARED: Mapping[str, tuple[Rule, ...]] = {
    API_ACCOUNT: API_RULES,
    RECONCILER_ACCOUNT: rules_of(CONTROLLER_RULES),
    STACK_WORKER_ACCOUNT: STACK_WORKER_RULES,
}
USERS = {account_user(account): account for account in DECLARED}
WRITES = ("create", "update", "patch", "delete")
UNSEEN = "/finalizers"
"""No request names this subresource: some clusters ask for the right to it when an owner reference is written."""

LASTING = {
    None: Scope.CLUSTER,
    SYSTEM_NAMESPACE: Scope.SYSTEM,
    STOCK_NAMESPACE: Scope.STOCK,
    DEFAULT_INSTANCE_NAMESPACE: Scope.TENANTS,
}
"""The namespaces that no test deletes, and the scope of the rights that an account has in each; none is the cluster."""

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
    tries: list[Try] = []
    for path in logs.glob("audit*.log"):
        with path.open() as log:
            for event in (json.loads(line) for line in log if line.endswith("\n")):
                used = list(read_usage(event, declared))
                seen.update(used)
                tries += read_try(event, used)
    missed.update(find_missed(tries))


class Try(NamedTuple):
    """A request in a place that lasts."""

    at: str
    right: Right
    is_allowed: bool


def read_try(event: Json, used: Iterable[Right]) -> Iterator[Try]:
    """Allowed ones count where the role of that very place allowed them."""
    at, target = event["requestReceivedTimestamp"], event.get("objectRef") or {}
    scope = LASTING.get(target.get("namespace"))
    if scope is None or event["user"]["username"] not in USERS:
        return
    if _decision(event) == "forbid" and target:
        account = USERS[event["user"]["username"]]
        yield Try(at, Right(account, scope, target.get("apiGroup", ""), _resource(target), event["verb"]), False)
    else:
        yield from (Try(at, right, True) for right in used if right.scope == scope)


def find_missed(tries: Iterable[Try]) -> Iterator[Right]:
    places: dict[tuple[str, str], list[Try]] = defaultdict(list)
    for each in tries:
        places[each.right.account, each.right.scope].append(each)
    for there in places.values():
        allowed = [each.at for each in there if each.is_allowed]
        yield from (
            each.right for each in there if not each.is_allowed and allowed and min(allowed) < each.at < max(allowed)
        )


def read_usage(event: Json, declared: set[Right]) -> Iterator[Right]:
    account = USERS.get(event["user"]["username"])
    target = event.get("objectRef")
    if account is None or target is None or _decision(event) != "allow":
        return
    group, verb = target.get("apiGroup", ""), event["verb"]
    asked = [(_resource(target), verb)]
    if group == GROUP and verb in WRITES:
        asked.append((target["resource"], MANAGE))
    for each, how in asked:
        rights = (Right(account, scope, group, each, how) for scope in scopes_of(target.get("namespace")))
        yield from [right for right in rights if right in declared][:1]


def scopes_of(namespace: str | None) -> tuple[Scope, ...]:
    """The scopes whose rules hold there, the widest first."""
    if namespace is None:
        return (Scope.CLUSTER,)
    own = {SYSTEM_NAMESPACE: Scope.SYSTEM, STOCK_NAMESPACE: Scope.STOCK}.get(namespace, Scope.TENANTS)
    return (Scope.CLUSTER, own)


def _decision(event: Json) -> str | None:
    decision: str | None = event.get("annotations", {}).get("authorization.k8s.io/decision")
    return decision


def _resource(target: Json) -> str:
    return "/".join(filter(None, (target["resource"], target.get("subresource"))))
