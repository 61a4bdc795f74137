"""`--file`: a request that is written down, the JSON of people, and the ids that make a request repeatable.

`create` and `update` take the same file, and one rule says what becomes of it. Options are merged into the file; an
update merges the result into the object as it is. A merge is a JSON merge patch (RFC 7386) in which a probe counts as
one value: objects are merged field by field, everything else is replaced, null removes a field of an object.
"""

import json
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_platform.cli.output import print_remark
from gpu_platform.client import PlatformError
from gpu_platform.domain.json_text import Json, parse_float, refuse_constant

FILE = "--file"

File = Annotated[
    str | None,
    typer.Option(FILE, help="The request as JSON, from a file or from - (stdin); options win.", metavar="FILE"),
]

WHOLE = frozenset({"startup", "readiness", "liveness"})
"""Probes. One way of asking is replaced by another: both together would be refused."""

NESTING_LIMIT = 200
"""Objects and lists inside each other. The API reads no more."""


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


def build_create(
    file: str | None, options: Json, name: str | None, operation_id: str | None, required: Mapping[str, str]
) -> Json:
    """The request for a new object. Without a name, the file names it, or else the API does. `required` are the fields
    that the API does not fill in, with the option of each. The operationID is the option's, the file's or a new one."""
    content = read_file(file)
    _check_name(content, name)
    chosen = operation_id or str(content.get("operationID") or "") or new_operation_id()
    request = {**merge(content, options), "operationID": chosen, **({"name": name} if name else {})}
    for field, option in required.items():
        if request.get(field) in (None, ""):
            raise typer.BadParameter("is missing", param_hint=option)
    return request


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


def _check_name(file: Json, name: str | None) -> None:
    if name is not None and (file.get("name") or name) != name:
        raise typer.BadParameter(f"it names {file['name']!r}, not {name!r}", param_hint=FILE)


def parse_json(text: str) -> Any:
    """ValueError says why it is none."""
    try:
        content = json.loads(text, parse_constant=refuse_constant, parse_float=parse_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _is_deeper(content, NESTING_LIMIT):
        raise ValueError("it is nested too deeply")
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half a character (a lone surrogate)") from None
    return content


def _is_deeper(content: Any, limit: int) -> bool:
    """Level by level: whatever calls itself would end where it looks for the end."""
    level = [content]
    for _ in range(limit):
        level = [child for item in level for child in _list_containers(item)]
        if not level:
            return False
    return True


def _list_containers(item: Any) -> tuple[Any, ...]:
    """Those right inside."""
    children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return tuple(child for child in children if isinstance(child, dict | list))


def new_operation_id() -> str:
    return f"cli-{secrets.token_hex(8)}"


@contextmanager
def replayable(chosen_id: str, option: str = "--operation-id") -> Iterator[None]:
    """Around the request itself: after it, nothing is in doubt."""
    doubt = "it may have been accepted all the same; this repeats it without doing it twice:"
    remedy = f"the same command with  {option} {chosen_id}"
    try:
        yield
    except PlatformError as error:
        if error.is_ambiguous:
            error.add_note(doubt)
            error.add_note(remedy)
        raise
    except KeyboardInterrupt:
        print_remark(f"interrupted before the answer came; {doubt}\n  {remedy}")
        raise
