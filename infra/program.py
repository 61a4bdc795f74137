"""The platform as one plain function: reads the settings, composes the components, names the outputs."""

import pulumi

from infra.settings import read_settings


def platform() -> None:
    settings = read_settings(pulumi.Config())
    pulumi.export("environment", settings.environment)
    pulumi.export("namespaces", settings.namespaces.model_dump())
