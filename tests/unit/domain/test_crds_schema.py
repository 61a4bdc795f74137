"""What becomes of each form of a pydantic field in the API server's dialect."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from gpu_platform.domain.crds import Schema, build_schema
from gpu_platform.domain.value import Value


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Wheel(Value):
    """A round
    thing."""

    spoke_count: Annotated[int, Field(ge=1, le=64)] = 32
    maker: str | None = None


WHEEL = {
    "description": "A round thing.",
    "type": "object",
    "properties": {
        "spokeCount": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 64, "default": 32},
        "maker": {"type": "string"},
    },
}


def make_model(annotation: Any, default: Any = ...) -> type[BaseModel]:
    return create_model("Made", __base__=Value, thing=(annotation, default))


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer", "format": "int64"}),
        (Annotated[int, Field(ge=0, le=7)], {"type": "integer", "format": "int32", "minimum": 0, "maximum": 7}),
        (datetime, {"type": "string", "format": "date-time"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Colour, {"type": "string", "enum": ["Red", "Blue"]}),
        (Annotated[str, Field(pattern="^a$")], {"type": "string", "pattern": "^a$"}),
        (Annotated[str, Field(min_length=1, max_length=9)], {"type": "string", "minLength": 1, "maxLength": 9}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (
            Annotated[tuple[bool, ...], Field(max_length=3)],
            {"type": "array", "maxItems": 3, "items": {"type": "boolean"}},
        ),
        (dict[str, str], {"type": "object", "additionalProperties": {"type": "string"}}),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (Wheel, WHEEL),
        (tuple[Wheel, ...], {"type": "array", "items": WHEEL}),
        (Annotated[Wheel, Field(description="In front.")], {**WHEEL, "description": "In front."}),
    ],
)
def test_a_field_that_must_be_given(annotation: Any, schema: Schema) -> None:
    assert build_schema(make_model(annotation)) == {
        "type": "object",
        "required": ["thing"],
        "properties": {"thing": schema},
    }


@pytest.mark.parametrize("annotation", [str, Colour, datetime, tuple[str, ...], dict[str, Any], Wheel])
def test_a_field_that_may_be_none_is_only_not_required(annotation: Any) -> None:
    optional, required = build_schema(make_model(annotation | None, None)), build_schema(make_model(annotation))

    assert "required" not in optional
    assert optional["properties"] == required["properties"]


@pytest.mark.parametrize(
    ("annotation", "default", "schema"),
    [
        (str, "x", {"type": "string", "default": "x"}),
        (bool, False, {"type": "boolean", "default": False}),
        (str, "", {"type": "string", "default": ""}),
        (tuple[str, ...], (), {"type": "array", "items": {"type": "string"}, "default": []}),
        (Colour, Colour.RED, {"type": "string", "enum": ["Red", "Blue"], "default": "Red"}),
        (dict[str, str], {}, {"type": "object", "additionalProperties": {"type": "string"}, "default": {}}),
    ],
)
def test_a_default_is_for_the_api_server_to_fill_in(annotation: Any, default: Any, schema: Schema) -> None:
    model = make_model(annotation, Field(default=default))

    assert build_schema(model) == {"type": "object", "properties": {"thing": schema}}


def test_a_default_object_leaves_to_its_fields_what_they_fill_in_themselves() -> None:
    assert build_schema(make_model(Wheel, Wheel()))["properties"]["thing"]["default"] == {}
    assert build_schema(make_model(Wheel, Wheel(maker="me")))["properties"]["thing"]["default"] == {"maker": "me"}


def test_the_same_model_in_two_places_shares_nothing() -> None:
    class Bicycle(Value):
        front: Wheel
        rear: Wheel

    fields = build_schema(Bicycle)["properties"]
    fields["front"]["properties"]["maker"]["maxLength"] = 5

    assert fields["rear"] == WHEEL


@pytest.mark.parametrize(
    "annotation",
    [str | int, Any, Annotated[int, Field(multiple_of=2)], Annotated[int, Field(gt=0)], tuple[int, str]],
)
def test_what_has_no_translation_is_an_error_and_not_forgotten(annotation: Any) -> None:
    with pytest.raises(ValueError, match="no structural schema"):
        build_schema(make_model(annotation))
