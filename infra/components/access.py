"""Who our processes are in the cluster, and what they may do there."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from gpu_platform.domain.rbac import Rule
from infra.declaring import declare, name_of
from infra.objects.roles import Account, build_account, build_program_roles, build_roles


@dataclass(frozen=True)
class ProcessAccessArgs:
    account: Account
    tenant_namespaces: Sequence[str]
    after: Sequence[pulumi.Resource]
    """The namespaces."""


class ProcessAccess(pulumi.ComponentResource):
    def __init__(self, name: str, args: ProcessAccessArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:ProcessAccess", name, {}, opts)
        account = declare(build_account(args.account), self, after=args.after)
        for body in build_roles(args.account, args.tenant_namespaces):
            declare(body, self, after=args.after)
        self.register_outputs({"serviceAccount": name_of(account)})


@dataclass(frozen=True)
class ProgramRolesArgs:
    rules: tuple[Rule, ...]
    after: Sequence[pulumi.Resource]
    """The namespaces."""


class ProgramRoles(pulumi.ComponentResource):
    """Roles for Pulumi programs of others that use the cluster provider; see docs/stacks.md."""

    def __init__(self, name: str, args: ProgramRolesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:ProgramRoles", name, {}, opts)
        declared = [declare(body, self, after=args.after) for body in build_program_roles(args.rules)]
        self.register_outputs({"roles": [name_of(each) for each in declared]})
