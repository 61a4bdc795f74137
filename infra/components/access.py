"""Who our processes are in the cluster, and what they may do there: ServiceAccounts, Roles and their bindings."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pulumi

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.rbac import Rule, Scope
from infra.component import Component, build_metadata, build_object, name_of

RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC = f"{RBAC_GROUP}/v1"
PROGRAM_ROLE = "gpu-platform-program"


@dataclass(frozen=True)
class Account:
    """A process's identity, and all that it may do."""

    name: str
    rules: tuple[Rule, ...]


def build_account(account: Account) -> Json:
    return build_object(
        "ServiceAccount",
        account.name,
        names.SYSTEM_NAMESPACE,
        # The process's own pods ask for the token; a pod that merely runs under this account gets none.
        automountServiceAccountToken=False,
    )


def build_roles(account: Account, tenant_namespaces: Sequence[str]) -> tuple[Json, ...]:
    """
    | scope   | role                        | bound                            |
    | ------- | --------------------------- | -------------------------------- |
    | cluster | ClusterRole `<name>`        | everywhere                       |
    | system  | Role `<name>`               | in the system namespace          |
    | stock   | Role `<name>`               | in the stock namespace           |
    | tenants | ClusterRole `<name>-tenant` | in each tenant's namespace alone |

    The last is a ClusterRole so that it is written once. A tenant that comes later needs a RoleBinding and no Role.
    """
    return tuple(_build_roles(account, tenant_namespaces))


def build_program_roles(rules: tuple[Rule, ...]) -> tuple[Json, ...]:
    """The roles of Pulumi programs that use the cluster provider themselves, by the same scopes, without bindings: an
    administrator binds the user or ServiceAccount of each program that is trusted."""
    roles = build_roles(Account(PROGRAM_ROLE, rules), ())
    return tuple(role for role in roles if not role["kind"].endswith("Binding"))


def build_tenant_binding(account: str, namespace: str) -> Json:
    return _binding("RoleBinding", account, namespace, "ClusterRole", tenant_role(account))


def tenant_role(account: str) -> str:
    """The ClusterRole that is bound in the namespace of each tenant."""
    return f"{account}-tenant"


def _build_roles(account: Account, tenant_namespaces: Sequence[str]) -> Iterator[Json]:
    cluster = account.name
    if rules := rules_in(account.rules, Scope.CLUSTER):
        yield _role("ClusterRole", cluster, None, rules)
        yield _binding("ClusterRoleBinding", account.name, None, "ClusterRole", cluster)
    for scope, namespace in ((Scope.SYSTEM, names.SYSTEM_NAMESPACE), (Scope.STOCK, names.STOCK_NAMESPACE)):
        if rules := rules_in(account.rules, scope):
            yield _role("Role", account.name, namespace, rules)
            yield _binding("RoleBinding", account.name, namespace, "Role", account.name)
    if rules := rules_in(account.rules, Scope.TENANTS):
        yield _role("ClusterRole", tenant_role(account.name), None, rules)
        for namespace in tenant_namespaces:
            yield build_tenant_binding(account.name, namespace)


def rules_in(rules: Iterable[Rule], scope: Scope) -> list[Json]:
    """The rules of one scope as RBAC has them: no verb twice, resources with the same verbs together, in fixed order,
    so that a preview shows a change of rights and nothing else."""
    verbs: dict[tuple[str, str, tuple[str, ...]], set[str]] = defaultdict(set)
    for rule in rules:
        if scope in rule.scopes:
            for resource in rule.resources:
                verbs[rule.group, resource, rule.names].update(rule.verbs)
    together: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource, only), allowed in sorted(verbs.items()):
        together[group, tuple(sorted(allowed)), only].append(resource)
    return [
        {
            "apiGroups": [group],
            "resources": resources,
            "verbs": list(allowed),
            **({"resourceNames": list(only)} if only else {}),
        }
        for (group, allowed, only), resources in together.items()
    ]


def _role(kind: str, name: str, namespace: str | None, rules: list[Json]) -> Json:
    return {"apiVersion": RBAC, "kind": kind, "metadata": build_metadata(name, namespace), "rules": rules}


def _binding(kind: str, account: str, namespace: str | None, role_kind: str, role: str) -> Json:
    return build_object(
        kind,
        account,
        namespace,
        roleRef={"apiGroup": RBAC_GROUP, "kind": role_kind, "name": role},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": names.SYSTEM_NAMESPACE}],
    )


@dataclass(frozen=True)
class ProcessAccessArgs:
    account: Account
    tenant_namespaces: Sequence[str]


class ProcessAccess(Component):
    def __init__(self, name: str, args: ProcessAccessArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("ProcessAccess", name, opts)
        self.service_account = name_of(self.declare(build_account(args.account)))
        for body in build_roles(args.account, args.tenant_namespaces):
            self.declare(body)
        self.register_outputs({"serviceAccount": self.service_account})


@dataclass(frozen=True)
class ProgramRolesArgs:
    rules: tuple[Rule, ...]


class ProgramRoles(Component):
    """Roles for Pulumi programs of others that use the cluster provider; see docs/stacks.md."""

    def __init__(self, name: str, args: ProgramRolesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("ProgramRoles", name, opts)
        self.roles = [name_of(self.declare(body)) for body in build_program_roles(args.rules)]
        self.register_outputs({"roles": self.roles})
