"""Settings of a process: its defaults, over them a YAML file, over both the environment.

A process declares a model of `Settings` and calls `load_settings` once, at its start. What is wrong becomes
one sentence that names the place, the key and the fix.
"""

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

SERVICE_LINK = re.compile(r"SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_.+)?)?")
"""What Kubernetes puts into a pod's environment for a Service that is named like our prefix. Not a setting."""


class SettingsError(Exception):
    """A setting that cannot be used. The message is for the person who wrote it."""


class Settings(BaseModel):
    """Frozen and strict; keys are camelCase in the file and UPPER_SNAKE in the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


def _check_address(text: str) -> str:
    split_address(text)
    return text


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ValueError("should be host:port, for example 127.0.0.1:9401 (port 0: any free one)")
    return host.strip("[]"), int(port)


Address = Annotated[str, AfterValidator(_check_address)]

S = TypeVar("S", bound=Settings)


def load_settings(model: type[S], file: Path | None, environment: Mapping[str, str], prefix: str) -> S:
    """Defaults < file < environment variables that begin with `prefix`; SettingsError says what is wrong."""
    from_file = _read_file(model, file) if file else {}
    from_environment = _read_environment(model, environment, prefix)
    # JSON on the way, because there a list is a list: Python's strictness would want tuples.
    document = json.dumps(from_file | from_environment, default=str)
    try:
        return model.model_validate_json(document, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        place = f"{prefix}{_variable(model, key)}" if key in from_environment else str(file or "the settings")
        raise SettingsError(f"{place}: {_sentence(key, first, first['loc'][1:])}") from error


def _read_file(model: type[Settings], file: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(file.read_text())
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{file} should hold one `key: value` per line, not a {type(document).__name__}")
    known = {field.alias or name for name, field in model.model_fields.items()}
    for key in document:
        if key not in known:
            raise SettingsError(f"{file}: there is no setting {key!r}{_nearest(str(key), known)}")
    return document


def _read_environment(model: type[Settings], environment: Mapping[str, str], prefix: str) -> dict[str, Any]:
    known = {name.upper(): field for name, field in model.model_fields.items()}
    values = {}
    for variable, text in environment.items():
        name = variable.removeprefix(prefix)
        if name == variable or SERVICE_LINK.fullmatch(name):
            continue
        if name not in known:
            raise SettingsError(f"{variable}: there is no such setting{_nearest(name, known, prefix)}")
        field = known[name]
        values[str(field.alias)] = _parse(field, variable, text)
    return values


def _parse(field: FieldInfo, variable: str, text: str) -> Any:
    """The value that a text means: "8" is a number where one is wanted, "a, b" a list, and JSON a section."""
    is_list = get_origin(field.annotation) in (list, tuple)
    is_section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    value = [part.strip() for part in text.split(",") if part.strip()] if is_list else text
    adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
    try:
        read = adapter.validate_json(text) if is_section else adapter.validate_python(value)
        return adapter.dump_python(read, mode="json", by_alias=True, exclude_unset=is_section)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(f"{variable}: {_sentence(str(field.alias), first, first['loc'])}") from error


def _sentence(key: str, error: ErrorDetails, position: tuple[int | str, ...]) -> str:
    """What pydantic said ("Input should be a valid integer"), with the key and the value in front."""
    _, should, wanted = error["msg"].partition("should")
    place = key + "".join(f"[{part}]" for part in position if isinstance(part, int))
    return f"{place} is {json.dumps(error['input'], default=str)}, and {should + wanted or error['msg']}"


def _nearest(word: str, known: Mapping[str, Any] | set[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else f"; there are: {', '.join(sorted(known))}"


def _variable(model: type[Settings], key: str) -> str:
    return next(name.upper() for name, field in model.model_fields.items() if field.alias == key)
