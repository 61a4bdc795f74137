"""What RBAC really allows an account: asked of the API server, and worked out from the declared rules."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from gpu_platform.domain import names
from gpu_platform.domain.rbac import Rule, Scope, account_groups, account_user
from gpu_platform.kube import KubeClient

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "manage")
TENANT = "runtime-instance-acme"
NAMESPACES = {
    "": (Scope.CLUSTER,),
    "kube-system": (Scope.CLUSTER,),
    names.SYSTEM_NAMESPACE: (Scope.CLUSTER, Scope.SYSTEM),
    names.STOCK_NAMESPACE: (Scope.CLUSTER, Scope.STOCK),
    names.DEFAULT_INSTANCE_NAMESPACE: (Scope.CLUSTER, Scope.TENANTS),
    TENANT: (Scope.CLUSTER, Scope.TENANTS),
}
"""Where is asked, and which rules hold there. The empty one is the whole cluster."""

TEMPTING = (
    ("", "configmaps"),
    ("", "persistentvolumes"),
    ("", "pods/exec"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "serviceaccounts/token"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
)
"""What nobody was given, but for one Secret, and what would be worth having."""

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
AT_ONCE = 40


@dataclass(frozen=True, order=True)
class Question:
    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""


def list_questions(rules: Iterable[Rule]) -> Iterator[Question]:
    declared = {(rule.group, resource) for rule in rules for resource in rule.resources}
    for (group, resource), namespace, verb in product(sorted({*declared, *TEMPTING}), NAMESPACES, VERBS):
        yield Question(namespace, group, resource, verb)
    for rule in rules:
        for name, resource, namespace, verb in product(rule.names, rule.resources, NAMESPACES, VERBS):
            yield Question(namespace, rule.group, resource, verb, name)


def is_declared(question: Question, rules: Iterable[Rule]) -> bool:
    scopes = NAMESPACES[question.namespace]
    return any(
        rule.group == question.group
        and question.resource in rule.resources
        and question.verb in rule.verbs
        and (not rule.names or question.name in rule.names)
        and any(scope in scopes for scope in rule.scopes)
        for rule in rules
    )


async def list_allowed(kube: KubeClient, account: str, questions: Iterable[Question]) -> set[Question]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask(question: Question) -> Question | None:
        async with limit:
            return question if await _is_allowed(kube, account, question) else None

    answers = await asyncio.gather(*map(ask, questions))
    return {answer for answer in answers if answer is not None}


async def _is_allowed(kube: KubeClient, account: str, question: Question) -> bool:
    resource, _, subresource = question.resource.partition("/")
    attributes = {
        "namespace": question.namespace,
        "group": question.group,
        "resource": resource,
        "subresource": subresource,
        "verb": question.verb,
        "name": question.name,
    }
    spec = {
        "user": account_user(account),
        "groups": [*account_groups(), "system:authenticated"],
        "resourceAttributes": attributes,
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool((await kube.create(REVIEWS, body))["status"]["allowed"])
