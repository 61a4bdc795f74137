"""The form of every value of the domain: frozen, camelCase on the wire, unknown fields ignored when read; and
what is said of one that is wrong.

Strictness towards callers is the API's business; an object that a newer version wrote must still be readable.
"""

from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails


class Value(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")

    def to_json(self) -> dict[str, Any]:
        """The wire form, without what was left unsaid."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def parse(cls, fields: Any) -> Self | None:
        """Returns the value; None for what does not fit the schema of this version."""
        try:
            return cls.model_validate(fields)
        except ValidationError:
            return None


class RequestError(Exception):
    """A request that cannot be accepted: the field, and what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def fields_of(value: Value, model: type[Value]) -> dict[str, Any]:
    """Returns the fields of the value that the model has, too, by name: to copy them into another model."""
    return {name: getattr(value, name) for name in _shared_fields(type(value), model)}


@cache
def _shared_fields(one: type[Value], other: type[Value]) -> tuple[str, ...]:
    # Remembered: a list of units copies the fields of each of them.
    return tuple(name for name in other.model_fields if name in one.model_fields)


def sentence_of(error: ErrorDetails) -> str:
    """What pydantic said, as the end of a sentence that begins with the field."""
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "is not a field that is known here"
    words = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return words[:1].lower() + words[1:]
