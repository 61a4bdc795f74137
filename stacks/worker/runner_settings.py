"""The runner as the worker's settings say. Apart from those, which the bootstrap program reads without Pulumi."""

from collections.abc import Mapping

from stacks.runner import RunnerSettings
from stacks.settings import StackWorkerSettings, choose_backend, read_passphrase


def build_runner_settings(settings: StackWorkerSettings, environment: Mapping[str, str]) -> RunnerSettings:
    return RunnerSettings(
        backend_url=choose_backend(settings, environment),
        work_directory=settings.state_directory.resolve(),
        passphrase=read_passphrase(settings, environment),
        pulumi=settings.pulumi,
        up_timeout=settings.up_timeout_seconds,
    )
