"""What a tenant's program wishes, checked and compared. Pure: nothing is asked of the platform."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pulumi.output import Unknown
from pydantic import Field, ValidationError

from gpu_platform.domain.gpu_units import Access, Template
from gpu_platform.domain.openapi_schema import build_schema
from gpu_platform.domain.unit_requests import RequestError, UnitRequest, normalise_access, normalise_request
from gpu_platform.domain.value_errors import sentence_of

Json = dict[str, Any]

LONGEST_WAIT_SECONDS = 86_400
PUT_FIELDS = ("image", "template", "access")
SHOWN = ("namespace", "memory", "gpu", "phase", "accessURL", "stack", "operationID", "sourceStockName", "nodeName")
"""What the platform alone can say."""


class Wish(UnitRequest):
    """All inputs of the resource."""

    running: bool = True
    ready_within_seconds: Annotated[int, Field(ge=0, le=LONGEST_WAIT_SECONDS)] = 300
    owner: Annotated[str | None, Field(min_length=1)] = None
    """The resource that may take over what an interrupted try of it has left: organization and URN."""


@dataclass(frozen=True)
class Failure:
    field: str
    reason: str


@dataclass(frozen=True)
class Difference:
    changed: tuple[str, ...]
    replacing: tuple[str, ...]


def check_wish(news: Json) -> tuple[Json, tuple[Failure, ...]]:
    """The inputs with all defaults said, as the API would accept them; or what the API would refuse, in its words.

    While a part is unknown, as in the preview of a program that has yet to make it, nothing is refused.
    """
    inputs = _as_json(news)
    if _contains_unknown(inputs):
        return _fill_in(inputs), ()
    try:
        wish = Wish.model_validate_json(json.dumps(inputs), strict=True, extra="forbid", by_alias=True, by_name=False)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        return inputs, tuple(Failure(_place(each["loc"]), sentence_of(each)) for each in found)
    try:
        return normalise_request(wish).to_json(), ()
    except RequestError as error:
        return inputs, (Failure(error.field, error.message),)


def build_request(inputs: Json, operation_id: str) -> Json:
    """The body of a POST."""
    fields = (field.alias for field in UnitRequest.model_fields.values())
    return {"operationID": operation_id, **{field: inputs[field] for field in fields if field in inputs}}


def find_difference(olds: Json, news: Json) -> Difference:
    """What an update would change. `olds` may be what a refresh has found.

    | field                              | change                                                         |
    | ---------------------------------- | -------------------------------------------------------------- |
    | name, specName                     | replace                                                        |
    | stockName, another one             | replace                                                        |
    | stockName, no longer said          | none: the unit has long taken its place                        |
    | template, empty while it was not   | replace: to a PUT, an empty one is none                        |
    | image, template, access            | update, by PUT                                                 |
    | running                            | update, by stop or start                                       |
    | readyWithinSeconds, owner          | none: they are about Pulumi, not about the unit                |
    """
    fields = ("name", "specName", "stockName", *PUT_FIELDS, "running")
    changed = [field for field in fields if not _is_same(olds.get(field), news.get(field))]
    if "stockName" in changed and news.get("stockName") is None:
        changed.remove("stockName")
    return Difference(tuple(changed), tuple(field for field in changed if _is_replacing(field, news)))


def _is_replacing(field: str, news: Json) -> bool:
    return field in ("name", "specName", "stockName") or (field == "template" and _is_empty(news.get(field)))


def build_outputs(view: Json, kept: Json) -> Json:
    """The resource's outputs: the unit as it is, and of the inputs what only Pulumi knows."""
    ours = {key: value for key, value in kept.items() if key in ("owner", "readyWithinSeconds", "stockName")}
    return {**ours, **build_live(view), **{key: view[key] for key in SHOWN if key in view}}


def build_live(view: Json) -> Json:
    """The unit's own inputs as it is. Through our models, so that a field of a newer API is no difference."""
    access = {"access": Access.model_validate(view["access"]).to_json()} if view.get("access") else {}
    return {
        "name": view["name"],
        "specName": view["specName"],
        "image": view.get("image"),
        "template": Template.model_validate(view["template"]).to_json(),
        **access,
        "running": view["running"],
    }


def build_inputs(outputs: Json) -> Json:
    """The inputs that these outputs would come of."""
    return {key: value for key, value in outputs.items() if key not in SHOWN}


def build_change(inputs: Json) -> Json:
    """The body of a PUT. What the unit shall not have must be left out, not said as nothing."""
    return {field: inputs[field] for field in PUT_FIELDS if inputs.get(field) is not None}


def _fill_in(inputs: Json) -> Json:
    """The defaults around what is unknown: a preview shows no more changes than there may be, and a plan that was saved
    from it still fits once everything is known."""
    filled: Json = _with_defaults(build_schema(Wish), inputs)
    template, access = filled["template"], filled.get("access")
    ports = template["ports"] if isinstance(template, dict) else template
    if _contains_unknown([ports, access]):
        return filled
    try:
        chosen = normalise_access(
            Template.model_validate({"ports": ports}), Access.model_validate(access) if access else None
        )
    except (ValidationError, RequestError):
        # Refused once the rest is known.
        return filled
    return {**filled, "access": chosen.to_json()} if chosen else filled


def _with_defaults(schema: Json, value: Any) -> Any:
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        said = {**{name: field["default"] for name, field in fields.items() if "default" in field}, **value}
        return {name: _with_defaults(fields.get(name, {}), each) for name, each in said.items()}
    if isinstance(value, list):
        return [_with_defaults(schema.get("items", {}), each) for each in value]
    return value


def _is_empty(template: Any) -> bool:
    return not _contains_unknown(template) and (template is None or Template.model_validate(template) == Template())


def _is_same(old: Any, new: Any) -> bool:
    return not _contains_unknown(new) and _as_json(old) == _as_json(new)


def _contains_unknown(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_contains_unknown, value.values()))
    return any(map(_contains_unknown, value)) if isinstance(value, list) else isinstance(value, Unknown)


def _as_json(value: Any) -> Any:
    """Pulumi keeps every number as a float; and what begins with two underscores is its own."""
    if isinstance(value, Mapping):
        return {key: _as_json(each) for key, each in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _place(parts: tuple[int | str, ...]) -> str:
    return "".join(_steps(parts)).lstrip(".")


def _steps(parts: tuple[int | str, ...]) -> Iterator[str]:
    for part in parts:
        yield f"[{part}]" if isinstance(part, int) else f".{part}"
