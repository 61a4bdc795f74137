"""The NVIDIA GPU Operator: drivers, device plugin and metrics of the nodes' GPUs."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from infra.declaring import declare
from infra.objects.namespaces import build_namespace
from infra.sections import GpuOperator


@dataclass(frozen=True)
class NvidiaGpuOperatorArgs:
    settings: GpuOperator
    values_are_secret: bool
    """Something in its section of the configuration is encrypted."""


class NvidiaGpuOperator(pulumi.ComponentResource):
    def __init__(self, name: str, args: NvidiaGpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:NvidiaGpuOperator", name, {}, opts)
        settings = args.settings
        # Drivers are loaded into the node's kernel: no profile but this one lets them.
        namespace = declare(build_namespace(settings.namespace, "privileged"), self)
        values = pulumi.Output.secret(settings.values) if args.values_are_secret else settings.values
        # A Release and not a Chart: this chart upgrades its own kinds by hooks.
        kubernetes.helm.v3.Release(
            "gpu-operator",
            name="gpu-operator",
            namespace=settings.namespace,
            chart=settings.chart,
            version=settings.version,
            repository_opts=kubernetes.helm.v3.RepositoryOptsArgs(repo=settings.repository),
            values=values,
            timeout=settings.timeout_seconds,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
        )
        self.register_outputs({})
