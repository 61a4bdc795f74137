"""Settings of the API. `config/local/api.yaml` shows every key with its default."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.domain.invocations import LARGEST_BODY
from gpu_platform.domain.network import is_loopback
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.settings import Address, Settings, SettingsError, load_settings, split_address

ENVIRONMENT_PREFIX = "GPU_PLATFORM_API_"

BODY_CEILING = 200_000
"""A request is kept in annotations, of which one object may have 256 KiB."""


INVOCATION_CEILING = 48 << 20
"""What a worker's framework still takes."""


class ApiSettings(Settings):
    http_addr: Address = "127.0.0.1:8080"
    metrics_address: Address = "127.0.0.1:9405"
    probe_address: Address = "127.0.0.1:9406"
    auth: Literal["keys", "none"] = "keys"
    kube_mode: Literal["auto", "off", "required"] = "auto"
    kubeconfig: Path | None = None
    report_interval_seconds: Annotated[int, Field(ge=5)] = 30
    resync_seconds: Annotated[int, Field(ge=10)] = 300
    max_body_bytes: Annotated[int, Field(ge=1_024, le=BODY_CEILING)] = 131_072
    max_requests_in_flight: Annotated[int, Field(ge=1)] = 512
    max_connections: Annotated[int, Field(ge=16)] = 2_048
    client_timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 10
    max_streams: Annotated[int, Field(ge=0)] = 100
    requests_per_second: Annotated[int, Field(ge=1)] = 500
    burst: Annotated[int, Field(ge=1)] = 1_000
    failed_logins_per_minute: Annotated[int, Field(ge=1)] = 60
    max_proxied: Annotated[int, Field(ge=0)] = 256
    proxy_idle_seconds: Annotated[int, Field(ge=1, le=86_400)] = 600
    public_url: Annotated[str | None, Field(alias="publicURL", pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*)?$")] = None
    development_addresses: bool = False
    nats_url: Annotated[str | None, Field(alias="natsURL", min_length=1)] = None
    nats_credentials: Path | None = None
    nats_ca: Annotated[Path | None, Field(alias="natsCA")] = None
    max_invocation_bytes: Annotated[int, Field(ge=1_024, le=INVOCATION_CEILING)] = LARGEST_BODY
    result_retention_seconds: Annotated[int, Field(ge=60, le=30 * 86_400)] = 86_400
    tenant_limits: TenantLimits = TenantLimits()
    nvidia_metrics_endpoint: Annotated[str | None, Field(pattern=r"^https?://[!-~]+$")] = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def resync(self) -> timedelta:
        return timedelta(seconds=self.resync_seconds)

    @property
    def result_retention(self) -> timedelta:
        return timedelta(seconds=self.result_retention_seconds)


def load_api_settings(file: Path | None, environment: Mapping[str, str]) -> ApiSettings:
    settings = load_settings(ApiSettings, file, environment, ENVIRONMENT_PREFIX)
    if settings.auth == "none" and not is_loopback(split_address(settings.http_addr)[0]):
        raise SettingsError(
            f"auth is none, which lets everybody in, and httpAddr is {settings.http_addr}: "
            "listen on 127.0.0.1, or set auth: keys"
        )
    return settings
