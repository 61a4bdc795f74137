"""Who our processes are in the cluster, and what they may do there."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from infra.declaring import declare, name_of
from infra.objects.roles import Account, build_account, build_roles


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
