"""What keeps the platform's own records in custom resources to the platform."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from infra.declaring import declare, name_of
from infra.objects.admission import build_policy, build_policy_binding


@dataclass(frozen=True)
class MetadataPolicyArgs:
    after: Sequence[pulumi.Resource]
    """The kinds, and the roles with the verb `manage`: in an update, processes that run already get it first."""


class MetadataPolicy(pulumi.ComponentResource):
    def __init__(self, name: str, args: MetadataPolicyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:MetadataPolicy", name, {}, opts)
        policy = declare(build_policy(), self, after=args.after)
        declare(build_policy_binding(), self, after=[policy])
        self.register_outputs({"policy": name_of(policy)})
