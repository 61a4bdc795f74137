"""Settings of the reconciler. `config/local/reconciler.yaml` shows every key with its default."""

from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.settings import Address, Settings, load_settings

ENVIRONMENT_PREFIX = "GPU_PLATFORM_RECONCILER_"

ControllerName = Literal["units", "stock", "operations", "orphans", "drift"]

PRIVATE_RANGES = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
"""Private networks, carrier-grade NAT, and link-local with the clouds' metadata services."""


def _check_network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"should be a network such as 10.0.0.0/8 ({error})") from error


Network = Annotated[str, AfterValidator(_check_network)]
Text = Annotated[str, Field(min_length=1)]


class ReconcilerSettings(Settings):
    leader_elect: bool = True
    lease_namespace: Text = SYSTEM_NAMESPACE
    lease_name: Text = "gpu-platform-reconciler"
    metrics_address: Address = "127.0.0.1:9401"
    probe_address: Address = "127.0.0.1:9402"
    resync_seconds: Annotated[int, Field(ge=10)] = 300
    controllers: tuple[ControllerName, ...] = ("units", "stock", "operations", "orphans", "drift")
    workers: Annotated[int, Field(ge=1, le=256)] = 8
    blocked_egress_cidrs: Annotated[tuple[Network, ...], Field(alias="blockedEgressCIDRs")] = PRIVATE_RANGES
    placeholder_image: Text = "busybox:1.36"
    kubeconfig: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def resync(self) -> timedelta:
        return timedelta(seconds=self.resync_seconds)


def load_reconciler_settings(file: Path | None, environment: Mapping[str, str]) -> ReconcilerSettings:
    return load_settings(ReconcilerSettings, file, environment, ENVIRONMENT_PREFIX)
