"""The only reader of the stack's configuration: typed, checked, and clear about what is wrong."""

from typing import Annotated

import pulumi
from pydantic import BaseModel, ConfigDict, Field, ValidationError

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Namespaces(Settings):
    """Where the platform keeps its own workloads, the warm stock, and the default tenant's units."""

    system: DnsLabel = "runtime-system"
    stock: DnsLabel = "runtime-stock"
    instance: DnsLabel = "runtime-instance"


class PlatformSettings(Settings):
    environment: DnsLabel
    namespaces: Namespaces = Namespaces()


def read_settings(config: pulumi.Config) -> PlatformSettings:
    """Read and check the stack's settings; a `RunError` names every key that is wrong and why."""
    values = {"environment": config.get("environment"), "namespaces": config.get_object("namespaces")}
    try:
        return PlatformSettings.model_validate({key: value for key, value in values.items() if value is not None})
    except ValidationError as error:
        raise pulumi.RunError(_explain(config.name, error)) from error


def _explain(project: str, error: ValidationError) -> str:
    lines = [
        f"  {project}:{'.'.join(str(step) for step in problem['loc'])}: {problem['msg']}" for problem in error.errors()
    ]
    return "\n".join(["the stack's configuration is not valid:", *lines, "mend it with `pulumi config set`"])
