"""NATS with JetStream."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from gpu_platform.domain.network import DnsPods
from infra.declaring import declare, name_of
from infra.objects.nats import build_nats, nats_url
from infra.sections import Nats


@dataclass(frozen=True)
class NatsServersArgs:
    settings: Nats
    dns: DnsPods
    after: Sequence[pulumi.Resource]
    """The namespaces."""


class NatsServers(pulumi.ComponentResource):
    def __init__(self, name: str, args: NatsServersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:NatsServers", name, {}, opts)
        # Services, policy and budget before the pods; the builder gives them in that order.
        *before, servers = build_nats(args.settings, args.dns)
        declared = [declare(body, self, after=args.after) for body in before]
        stateful_set = declare(servers, self, after=[*args.after, *declared])
        self.url = name_of(stateful_set).apply(lambda _: nats_url())
        self.register_outputs({"url": self.url})
