"""Our own processes."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from gpu_platform.domain.names import SYSTEM_NAMESPACE
from infra.declaring import declare, name_of
from infra.objects.namespaces import build_default_deny
from infra.objects.workloads import (
    API,
    api_url,
    build_processes,
    build_service_monitors,
    build_workload,
    find_ignored_setting,
)
from infra.sections import Nats, Workloads


@dataclass(frozen=True)
class PlatformWorkloadsArgs:
    settings: Workloads
    nats: Nats
    """Whose clients they are, if there is one."""

    after: Sequence[pulumi.Resource]
    """What a process needs at its first step: namespaces, kinds, rights, keys."""


class PlatformWorkloads(pulumi.ComponentResource):
    def __init__(self, name: str, args: PlatformWorkloadsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:Workloads", name, {}, opts)
        if warning := find_ignored_setting(args.settings):
            pulumi.log.warn(warning, self)
        declare(build_default_deny(SYSTEM_NAMESPACE), self, after=args.after)
        for process in build_processes(args.settings, args.nats):
            settings, *others = build_workload(process, args.settings, args.nats)
            declared = declare(settings, self, after=args.after)
            for body in others:
                made = declare(body, self, after=[*args.after, declared])
                if (body["kind"], process.name) == ("Service", API):
                    self.api_url = name_of(made).apply(lambda _: api_url())
        for body in build_service_monitors(args.settings):
            declare(body, self, after=args.after)
        self.register_outputs({"apiURL": self.api_url})
