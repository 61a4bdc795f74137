"""The NVIDIA GPU Operator: drivers, device plugin and metrics of the nodes' GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from infra.components.namespaces import build_namespace
from infra.objects import declare, name_of
from infra.sections import GpuOperator


@dataclass(frozen=True)
class NvidiaGpuOperatorArgs:
    settings: GpuOperator
    values_are_secret: bool
    """Something in its section of the configuration is encrypted."""

    after: Sequence[pulumi.Resource]
    """Everything else. The plugin loads the chart already in a preview; where that fails, Pulumi stops, and all that is
    declared before the release has been previewed or made by then."""


class NvidiaGpuOperator(pulumi.ComponentResource):
    def __init__(self, name: str, args: NvidiaGpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:NvidiaGpuOperator", name, {}, opts)
        settings = args.settings
        # Drivers are loaded into the node's kernel: no profile but this one lets them.
        namespace = declare(build_namespace(settings.namespace, "privileged"), self)
        values = pulumi.Output.secret(settings.values) if args.values_are_secret else settings.values
        # A Release and not a Chart: this chart upgrades its own kinds by hooks.
        repository = settings.chart_repository
        release = kubernetes.helm.v3.Release(
            "gpu-operator",
            name="gpu-operator",
            namespace=settings.namespace,
            chart=settings.chart,
            version=settings.version,
            repository_opts=kubernetes.helm.v3.RepositoryOptsArgs(repo=repository) if repository else None,
            values=values,
            timeout=settings.timeout_seconds,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace, *args.after]),
        )
        self.version = release.version
        self.register_outputs({"namespace": name_of(namespace), "version": self.version})
