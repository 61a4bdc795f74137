"""`--file`: a request that is written down. Pure, but for `read_file`.

`create` and `update` take the same file, and one rule says what becomes of it. Options are merged into the file; an
update merges the result into the object as it is. A merge is a JSON merge patch (RFC 7386) in which a probe counts as
one value: objects are merged field by field, everything else is replaced, null removes a field of an object.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_platform.cli.json_input import parse_json
from gpu_platform.cli.views import Json

FILE = "--file"
File = Annotated[
    str | None,
    typer.Option(FILE, help="The request as JSON, from a file or from - (stdin); options win.", metavar="FILE"),
]

WHOLE = frozenset({"startup", "readiness", "liveness"})
"""Probes. One way of asking is replaced by another: both together would be refused."""


@dataclass(frozen=True)
class Kind:
    """What of a create request an update cannot change. The other fields, it can."""

    noun: str
    fixed: frozenset[str]
    """Refused in an update if they differ from the object's."""

    at_creation: frozenset[str]
    """Left out of an update: they say how the object is made, not what it is."""


UNIT = Kind("unit", frozenset({"namespace", "specName"}), frozenset({"operationID", "stockName", "stockNamespace"}))
FUNCTION = Kind("function", frozenset({"specName"}), frozenset({"operationID"}))
STORAGE = Kind("storage", frozenset({"storageClassName", "prepare"}), frozenset({"operationID"}))
POOL = Kind("pool", frozenset({"namespace", "specName"}), frozenset({"operationID", "memory", "gpu"}))


def read_file(file: str | None) -> Json:
    """The JSON object of `--file`, empty without one."""
    if file is None:
        return {}
    try:
        # JSON is UTF-8, whatever the locale says.
        content = parse_json((sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode())
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint=FILE) from None
    except ValueError as error:
        raise typer.BadParameter(f"{file} is not JSON: {error}", param_hint=FILE) from None
    if not isinstance(content, dict):
        raise typer.BadParameter(f"{file} should hold one JSON object", param_hint=FILE)
    return content


def merge(base: Json, over: Mapping[str, Any]) -> Json:
    """See the top of this module."""
    merged = dict(base)
    for name, value in over.items():
        before = merged.get(name)
        if value is None:
            merged.pop(name, None)
        elif not isinstance(value, dict) or name in WHOLE:
            merged[name] = value
        elif before is None or isinstance(before, dict):
            merged[name] = merge(before or {}, value)
        else:
            raise typer.BadParameter(f"its {name!r} should be a JSON object", param_hint=FILE)
    return merged


def build_create(file: Json, options: Json, name: str | None, operation_id: str) -> Json:
    """The request for a new object. None: the file names it, or else the API does."""
    _check_name(file, name)
    return {**merge(file, options), "operationID": operation_id, **({"name": name} if name else {})}


@dataclass(frozen=True)
class Update:
    """What is to be changed of an object, before the object is known. Refuses what names no change, or another name."""

    kind: Kind
    name: str
    file: Json
    options: Json

    def __post_init__(self) -> None:
        _check_name(self.file, self.name)
        if not self._changeable:
            raise typer.BadParameter(
                f"say what to change of the {self.kind.noun}: with options, or with a field of {FILE}"
            )

    @property
    def _changeable(self) -> list[str]:
        fixed = {"name"} | self.kind.fixed | self.kind.at_creation
        return [field for field in {**self.file, **self.options} if field not in fixed]

    def build_request(self, current: Mapping[str, Any]) -> Json:
        """The change of this object. The API replaces a nested object as a whole, so it is sent whole."""
        after = merge(dict(current), self.file)
        for field in sorted(self.kind.fixed & self.file.keys()):
            before, asked = current.get(field), self.file[field]
            if asked is not None and after[field] != before:
                raise typer.BadParameter(
                    f"{field} {asked!r} differs from the {self.kind.noun}'s {before!r} and cannot be changed; "
                    f"leave it out of the file, or create another {self.kind.noun}",
                    param_hint=FILE,
                )
        after = merge(after, self.options)
        return {field: after.get(field) for field in self._changeable}


def require_said(request: Json, option_of: dict[str, str]) -> None:
    """The fields that the API does not fill in, and the option of each."""
    for field, option in option_of.items():
        if request.get(field) in (None, ""):
            raise typer.BadParameter("is missing", param_hint=option)


def _check_name(file: Json, name: str | None) -> None:
    if name is not None and (file.get("name") or name) != name:
        raise typer.BadParameter(f"it names {file['name']!r}, not {name!r}", param_hint=FILE)
