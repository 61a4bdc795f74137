"""The only reader of the stack's configuration: typed, checked, and clear about what is wrong."""

import difflib
import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Self

import pulumi
from pulumi.runtime import config as runtime_config
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gpu_platform.domain.stock import CatalogueName, PoolName
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.domain.tenants import DEFAULT_TENANT, TENANT_NAME, Role, hash_secret, split_key
from gpu_platform.settings import Settings
from infra.components.api_configuration import ApiKey
from infra.components.catalogue import GpuSpec, StockPool
from infra.components.gpu_operator import GpuOperator
from infra.components.namespaces import Namespaces, TenantNamespace
from infra.components.nats import Nats
from infra.components.processes import Workloads
from infra.field_types import DnsLabel

TenantName = Annotated[str, Field(pattern=f"^{TENANT_NAME.pattern}$")]
KeyId = Annotated[str, Field(pattern=r"^[a-z0-9]{8}$")]


class SettingsError(pulumi.RunError):
    """A configuration that cannot be used. Pulumi shows the message alone, without a traceback."""


class PlatformSettings(Settings):
    environment: DnsLabel
    protect: bool = True
    """`pulumi destroy` refuses to take what holds tenants' things: their namespaces, and the kinds themselves."""

    namespaces: Namespaces = Namespaces()
    tenants: dict[TenantName, TenantNamespace] = Field(default={})
    """Besides `default`, whose namespace is `namespaces.instance`."""

    tenant_limits: TenantLimits = TenantLimits()
    """What differs for all tenants from the API's own limits."""

    gpu_specs: dict[CatalogueName, GpuSpec] = Field(default={})
    stock_pools: dict[PoolName, StockPool] = Field(default={})
    gpu_operator: GpuOperator = GpuOperator()
    nats: Nats = Nats()
    workloads: Workloads = Workloads()
    api_keys: dict[KeyId, ApiKey] = Field(default={})
    administrator_key_from: str = ""
    """An environment variable that holds an administrator's key, a platform key that rents in the tenant `default`: for
    a developer's own cluster, whose key belongs to that developer, and so in no file of the repository."""

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        """What one section says of another. Each problem begins with the key that is to be mended."""
        problems = [
            *(
                f"tenants.{name} is there already, as namespaces.instance"
                for name in self.tenants
                if name == DEFAULT_TENANT
            ),
            *(
                f"stockPools.{name}.specName is {pool.spec_name!r}, and gpuSpecs has {_list_of(self.gpu_specs)}"
                for name, pool in self.stock_pools.items()
                if pool.spec_name not in self.gpu_specs
            ),
            *(
                f"apiKeys.{name}.tenant is {key.tenant!r}, and there are {_list_of((DEFAULT_TENANT, *self.tenants))}"
                for name, key in self.api_keys.items()
                if key.tenant not in (DEFAULT_TENANT, *self.tenants)
            ),
            *(
                f"apiKeys.{name}.roles has {_list_of(key.platform_roles)}, and apiKeys.{name}.platform is false: only "
                "a platform key has these roles; write platform: true, or remove them"
                for name, key in self.api_keys.items()
                if key.platform is False and key.platform_roles
            ),
        ]
        if problems:
            raise ValueError(problems[0])
        return self


def read_settings(config: pulumi.Config) -> PlatformSettings:
    """SettingsError is one sentence about the first key that is wrong, and nothing has happened by then."""
    return with_administrator(config.name, parse_settings(config.name, list_values(config.name)), os.environ)


def with_administrator(project: str, settings: PlatformSettings, environment: Mapping[str, str]) -> PlatformSettings:
    """The same, with the hash of the key that the environment holds among the others."""
    variable = settings.administrator_key_from
    if not variable:
        return settings
    key = split_key(environment.get(variable, ""))
    if key is None:
        raise SettingsError(
            f"{project}:administratorKeyFrom is {variable!r}, and that environment variable holds no API key; "
            'for the embedded cluster: eval "$(gpu-platform dev env)"'
        )
    key_id, secret = key
    record = ApiKey(sha256=hash_secret(secret), tenant=DEFAULT_TENANT, roles=(Role.ADMIN,), platform=True)
    return settings.model_copy(update={"api_keys": {**settings.api_keys, key_id: record}})


def is_secret(config: pulumi.Config, key: str) -> bool:
    """Whether something in this section is encrypted. What is made of it has to be a secret too."""
    return runtime_config.is_config_secret(config.full_key(key))


def list_values(project: str) -> dict[str, str]:
    """Every key of the project. `pulumi.Config` itself gives only those that one asks for, so that a key with a typing
    error would have no effect, and nobody would know."""
    everything = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    prefix = f"{project}:"
    return {key.removeprefix(prefix): value for key, value in everything.items() if key.startswith(prefix)}


def parse_settings(project: str, values: Mapping[str, str]) -> PlatformSettings:
    """Pulumi hands every value over as text, and sections as JSON."""
    known = {str(field.alias): field for field in PlatformSettings.model_fields.values()}
    try:
        document = {key: _parse_value(known.get(key), key, text) for key, text in values.items()}
        # JSON on the way, because there a list is a list: Python's strictness would want tuples.
        return PlatformSettings.model_validate_json(json.dumps(document), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        problem = _sentence(error.errors()[0], frozenset(key for key in values if _is_encrypted(project, key)))
    except ValueError as error:
        problem = str(error)
    raise SettingsError(f"{project}:{problem}")


def _is_encrypted(project: str, key: str) -> bool:
    return runtime_config.is_config_secret(f"{project}:{key}")


def _parse_value(field: FieldInfo | None, key: str, text: str) -> Any:
    if field is None or field.annotation is str:
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"{key} is {text!r}, and should be {_form_of(field)}") from None


def _form_of(field: FieldInfo) -> str:
    return "true or false" if field.annotation is bool else "a section with keys of its own"


def _sentence(error: ErrorDetails, encrypted: frozenset[str]) -> str:
    """`workloads.image is "web:latest", and does not name one version`: the key, the value, and what is wrong."""
    steps = [str(step) for step in error["loc"] if step != "[key]"]
    place, message = ".".join(steps), error["msg"].removeprefix("Value error, ")
    match error["type"]:
        case "missing":
            return f"{place} is missing"
        case "extra_forbidden":
            return f"{place} is no setting{_nearest(steps)}"
        case "value_error":
            return f"{place}: {message}" if place else message
    if error["loc"][-1:] == ("[key]",):
        return f"{place} is no name that can be used there: {message[0].lower()}{message[1:]}"
    _, should, wanted = message.partition("should")
    shown = "a secret" if steps and steps[0] in encrypted else json.dumps(error["input"], default=str)
    return f"{place} is {shown}, and {should + wanted or message}"


def _nearest(steps: list[str]) -> str:
    """The key that was probably meant, among those of the same section."""
    model: Any = PlatformSettings
    for step in steps[:-1]:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = next((each.annotation for each in model.model_fields.values() if each.alias == step), None)
        else:
            # A mapping of names: its values have the keys.
            model = getattr(model, "__args__", (None,))[-1]
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return ""
    known = sorted(str(field.alias) for field in model.model_fields.values())
    near = difflib.get_close_matches(steps[-1], known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(known)}"


def _list_of(names: Any) -> str:
    return ", ".join(names) or "none"
