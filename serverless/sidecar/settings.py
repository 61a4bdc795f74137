"""Settings of the sidecar, all from the environment: a pod has no file of them."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gpu_platform.settings import Settings, load_settings
from serverless.framework.calls import DEFAULT_SOCKET, HEALTH, INVOKE

ENVIRONMENT_PREFIX = "GPU_PLATFORM_SIDECAR_"

Text = Annotated[str, Field(min_length=1)]


class SidecarSettings(Settings):
    nats_url: Annotated[str, Field(alias="natsURL", min_length=1)] = "nats://127.0.0.1:4222"
    nats_credentials: Path | None = None
    nats_ca: Annotated[Path | None, Field(alias="natsCA")] = None
    tenant: Text = "default"
    function: Text
    worker: Text
    socket: Path = DEFAULT_SOCKET
    invoke_path: Text = INVOKE
    health_path: Text = HEALTH
    health_host: Text = "127.0.0.1"
    health_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    concurrency: Annotated[int, Field(ge=1, le=256)] = 1
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    ack_wait_seconds: Annotated[int, Field(ge=1)] = 30
    result_retention_seconds: Annotated[int, Field(ge=1)] = 24 * 3600
    woken_at: AwareDatetime | None = None
    claimed_at: AwareDatetime | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def ack_wait(self) -> timedelta:
        return timedelta(seconds=self.ack_wait_seconds)

    @property
    def result_retention(self) -> timedelta:
        return timedelta(seconds=self.result_retention_seconds)


def load_sidecar_settings(environment: Mapping[str, str]) -> SidecarSettings:
    return load_settings(SidecarSettings, None, environment, ENVIRONMENT_PREFIX)
