"""Settings of the stack worker, which restore and shell read too.

`config/local/stack-worker.yaml` shows every key with its default. The bootstrap program imports this module, so it
imports the settings' base class and nothing else of ours.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gpu_platform.settings import Address, Settings, SettingsError, load_settings

ENVIRONMENT_PREFIX = "GPU_PLATFORM_STACK_WORKER_"


class StackWorkerSettings(Settings):
    state_directory: Path = Path(".stacks")
    backend_url: Annotated[str | None, Field(alias="backendURL", min_length=1)] = None
    passphrase_file: Path | None = None
    pulumi: Path | None = None
    parallel: Annotated[int, Field(ge=1, le=64)] = 2
    up_timeout_seconds: Annotated[int, Field(ge=5)] = 120
    lease_seconds: Annotated[int, Field(ge=3)] = 30
    audit_period_seconds: Annotated[int, Field(ge=5)] = 6 * 3600
    metrics_address: Address = "127.0.0.1:9403"
    probe_address: Address = "127.0.0.1:9404"
    resync_seconds: Annotated[int, Field(ge=10)] = 300
    kubeconfig: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def audit_period(self) -> timedelta:
        return timedelta(seconds=self.audit_period_seconds)

    @property
    def resync(self) -> timedelta:
        return timedelta(seconds=self.resync_seconds)


def load_stack_worker_settings(file: Path | None, environment: Mapping[str, str]) -> StackWorkerSettings:
    return load_settings(StackWorkerSettings, file, environment, ENVIRONMENT_PREFIX)


def choose_backend(settings: StackWorkerSettings, environment: Mapping[str, str]) -> str:
    """The setting, else Pulumi's own variable, else files in the state directory."""
    said = settings.backend_url or environment.get("PULUMI_BACKEND_URL")
    return said or f"file://{settings.state_directory.resolve()}/state"


def read_passphrase(settings: StackWorkerSettings, environment: Mapping[str, str]) -> str:
    """Of the file that the settings name, else as Pulumi's own variables say."""
    file = settings.passphrase_file or environment.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if file is None:
        if passphrase := environment.get("PULUMI_CONFIG_PASSPHRASE"):
            return passphrase
        raise SettingsError("the stacks' secrets need a passphrase: name a file with one as passphraseFile")
    try:
        passphrase = Path(file).read_text().strip()
    except OSError as error:
        raise SettingsError(f"passphraseFile {file}: {error.strerror}") from error
    if not passphrase:
        raise SettingsError(f"passphraseFile {file} is empty; put a passphrase into it")
    return passphrase
