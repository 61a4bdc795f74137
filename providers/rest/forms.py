"""What a tenant's program wishes, checked and compared. Pure: nothing is asked of the platform."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pulumi.output import Unknown
from pydantic import Field, ValidationError

from gpu_platform.domain.crds import build_schema
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import RequestError
from gpu_platform.domain.value import Value, sentence_of

W = TypeVar("W", bound=Value)

LONGEST_WAIT_SECONDS = 86_400
ReadyWithin = Annotated[int, Field(ge=0, le=LONGEST_WAIT_SECONDS)]
Owner = Annotated[str | None, Field(min_length=1)]
"""The resource that may take over what an interrupted try of it has left: organization and URN."""


@dataclass(frozen=True)
class Failure:
    field: str
    reason: str


@dataclass(frozen=True)
class Difference:
    changed: tuple[str, ...]
    replacing: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """How a person is told about it."""

    what: str
    """Such as `unit`."""

    make: str
    """Such as `rent`."""

    makes_anew: str
    undo: str
    """What one does with it in the end, such as `give that one back`."""

    undone: str
    removal: str
    """The command that does so."""


@dataclass(frozen=True)
class Form(Generic[W]):
    """One kind of resource: where the API has it, what can be wished of it, and what comes of a change."""

    words: Words
    collection: str
    absence: str
    """The API's code for one that is not there."""

    wish: type[W]
    """All inputs of the resource."""

    request: type[Value]
    """Those of them that a POST has."""

    normalise: Callable[[W], Value]
    """RequestError for what cannot be."""

    fill_in: Callable[[Json], Json]
    """More defaults, around what is unknown."""

    build_live: Callable[[Json], Json]
    """From the API's view: its own inputs as it is. Through our models, so that a field of a newer API is no
    difference."""

    put_fields: tuple[str, ...]
    compared: tuple[str, ...]
    """What makes a difference. Of the rest, all is about Pulumi."""

    forgotten: tuple[str, ...]
    """What may be no longer said without making a difference."""

    is_replacing: Callable[[str, Json], bool]
    """Whether a change of this field needs a new one; with the new inputs."""

    kept: tuple[str, ...]
    """Inputs that the platform does not show."""

    shown: tuple[str, ...]
    """What the platform alone can say."""

    goal_of: Callable[[Json], str]
    """The phase that an `up` waits for, from the inputs."""

    def check(self, news: Json) -> tuple[Json, tuple[Failure, ...]]:
        """The inputs with all defaults said, as the API would accept them; or what the API would refuse, in its words.

        While a part is unknown, as in the preview of a program that has yet to make it, nothing is refused.
        """
        inputs = as_json(news)
        if contains_unknown(inputs):
            # A preview shows no more changes than there may be, and a plan that was saved from it still fits once
            # everything is known.
            return self.fill_in(_with_defaults(build_schema(self.wish), inputs)), ()
        try:
            wish = self.wish.model_validate_json(
                json.dumps(inputs), strict=True, extra="forbid", by_alias=True, by_name=False
            )
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)
            return inputs, tuple(Failure(_place(each["loc"]), sentence_of(each)) for each in found)
        try:
            return self.normalise(wish).to_json(), ()
        except RequestError as error:
            return inputs, (Failure(error.field, error.message),)

    def build_request(self, inputs: Json, operation_id: str) -> Json:
        """The body of a POST."""
        fields = (field.alias for field in self.request.model_fields.values())
        return {"operationID": operation_id, **{field: inputs[field] for field in fields if field in inputs}}

    def build_change(self, inputs: Json) -> Json:
        """The body of a PUT. What it shall not have must be left out, not said as nothing."""
        return {field: inputs[field] for field in self.put_fields if inputs.get(field) is not None}

    def find_difference(self, olds: Json, news: Json) -> Difference:
        """What an update would change. `olds` may be what a refresh has found."""
        changed = [field for field in self.compared if not is_same(olds.get(field), news.get(field))]
        changed = [field for field in changed if field not in self.forgotten or news.get(field) is not None]
        return Difference(tuple(changed), tuple(field for field in changed if self.is_replacing(field, news)))

    def build_outputs(self, view: Json, inputs: Json) -> Json:
        """The resource's outputs: the thing as it is, and of the inputs what only Pulumi knows."""
        ours = {key: value for key, value in inputs.items() if key in self.kept}
        return {**ours, **self.build_live(view), **{key: view[key] for key in self.shown if key in view}}

    def build_inputs(self, outputs: Json) -> Json:
        """The inputs that these outputs would come of."""
        return {key: value for key, value in outputs.items() if key not in self.shown}


def is_same(old: Any, new: Any) -> bool:
    return not contains_unknown(new) and as_json(old) == as_json(new)


def contains_unknown(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(contains_unknown, value.values()))
    return any(map(contains_unknown, value)) if isinstance(value, list) else isinstance(value, Unknown)


def as_json(value: Any) -> Any:
    """Pulumi keeps every number as a float; and what begins with two underscores is its own."""
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _with_defaults(schema: Json, value: Any) -> Any:
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        said = {**{name: field["default"] for name, field in fields.items() if "default" in field}, **value}
        return {name: _with_defaults(fields.get(name, {}), each) for name, each in said.items()}
    if isinstance(value, list):
        return [_with_defaults(schema.get("items", {}), each) for each in value]
    return value


def _place(parts: tuple[int | str, ...]) -> str:
    return "".join(_steps(parts)).lstrip(".")


def _steps(parts: tuple[int | str, ...]) -> Iterator[str]:
    for part in parts:
        yield f"[{part}]" if isinstance(part, int) else f".{part}"
