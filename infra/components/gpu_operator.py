"""The NVIDIA GPU Operator: drivers, device plugin and metrics of the nodes' GPUs."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

import pulumi
import pulumi_kubernetes as kubernetes
from pydantic import Field, model_validator

from gpu_platform.settings import Settings
from infra.component import Component, name_of
from infra.components.namespaces import build_namespace
from infra.field_types import DnsLabel

NVIDIA_CHARTS = "https://helm.ngc.nvidia.com/nvidia"


class GpuOperator(Settings):
    """The NVIDIA GPU Operator, as a Helm release."""

    enabled: bool = False
    namespace: DnsLabel = "gpu-operator"
    chart: Annotated[str, Field(min_length=1)] = "gpu-operator"
    """A name in the repository, `oci://…`, or a local directory that begins with `.` or `/`."""

    version: Annotated[str, Field(pattern=r"^v?[0-9]+\.[0-9]+\.[0-9]+([-+.][0-9A-Za-z.+-]+)?$")] | None = None
    repository: Annotated[str, Field(pattern=r"^https://")] | None = None
    """Of a chart that is only a name; without one, NVIDIA's. An OCI chart or a local one has none."""

    values: dict[str, Any] = Field(default={})
    timeout_seconds: Annotated[int, Field(ge=60, le=7_200)] = 900
    """For the operator's own pods. The drivers come later, node by node."""

    @model_validator(mode="after")
    def _check_version(self) -> Self:
        if self.enabled and self.version is None:
            raise ValueError("version is needed where enabled is true")
        if self.repository is not None and not self.is_in_repository:
            raise ValueError(f"repository is for a chart that is a name; {self.chart!r} has none, so remove it")
        return self

    @property
    def is_in_repository(self) -> bool:
        return not self.chart.startswith(("oci://", ".", "/"))

    @property
    def chart_repository(self) -> str | None:
        return (self.repository or NVIDIA_CHARTS) if self.is_in_repository else None


@dataclass(frozen=True)
class NvidiaGpuOperatorArgs:
    settings: GpuOperator
    values_are_secret: bool
    """Something in its section of the configuration is encrypted."""


class NvidiaGpuOperator(Component):
    """Has to depend on everything else. The plugin loads the chart already in a preview; where that fails, Pulumi
    stops, and all that is declared before the release has been previewed or made by then."""

    def __init__(self, name: str, args: NvidiaGpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("NvidiaGpuOperator", name, opts)
        settings = args.settings
        # Drivers are loaded into the node's kernel: no profile but this one lets them.
        namespace = self.declare(build_namespace(settings.namespace, "privileged"))
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
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*self.dependencies, namespace]),
        )
        self.version = release.version
        self.register_outputs({"namespace": name_of(namespace), "version": self.version})
