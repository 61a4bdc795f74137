"""pydantic models as structural OpenAPI schemas: the dialect of CustomResourceDefinitions.

Against the JSON Schema that pydantic writes, a structural schema is flat (no references), says "optional" by
leaving a field out of `required` (no union with null), and has a name of its own for free-form objects. A
keyword without a place here is an error, so that no constraint gets lost on the way to the API server.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

COPIED = (
    *("type", "format", "enum", "pattern", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)
TRANSLATED = ("description", "default", "required", "properties", "additionalProperties", "items")
DROPPED = ("title",)

LARGEST_INT32 = 2**31 - 1


def build_schema(model: type[BaseModel]) -> Schema:
    """The schema that accepts what the model accepts, and fills in the defaults that the model fills in."""
    document = model.model_json_schema(by_alias=True)
    return _translate(document, document.pop("$defs", {}))


def _translate(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    node = _resolve(node, definitions)
    unknown = node.keys() - {*COPIED, *TRANSLATED, *DROPPED}
    if unknown or "type" not in node:
        raise ValueError(f"this has no structural schema: {node}")
    schema = {keyword: node[keyword] for keyword in COPIED if keyword in node}
    if "description" in node:
        schema = {"description": " ".join(node["description"].split()), **schema}
    match node["type"]:
        case "integer":
            schema["format"] = "int32" if node.get("maximum", LARGEST_INT32 + 1) <= LARGEST_INT32 else "int64"
        case "array":
            schema["items"] = _translate(node["items"], definitions)
        case "object":
            schema |= _translate_fields(node, definitions)
    if node.get("default") is not None:
        schema["default"] = _without_implied(node["default"], schema)
    return schema


def _resolve(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """The node itself in place of a reference or a union with null; what stands beside those prevails."""
    match node:
        case {"$ref": str(reference), **beside}:
            inner = deepcopy(definitions[reference.removeprefix("#/$defs/")])
        case {"anyOf": [inner, {"type": "null"}], **beside}:
            pass
        case _:
            return node
    return _resolve(inner, definitions) | beside


def _translate_fields(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    match node:
        case {"additionalProperties": True}:
            return {"x-kubernetes-preserve-unknown-fields": True}
        case {"additionalProperties": dict(values)}:
            return {"additionalProperties": _translate(values, definitions)}
    properties = {name: _translate(field, definitions) for name, field in node["properties"].items()}
    required = {"required": node["required"]} if "required" in node else {}
    return {**required, "properties": properties}


def _without_implied(default: Any, schema: Schema) -> Any:
    """The default less what the fields' own defaults add: `{}` for an object of nothing but defaults."""
    if not isinstance(default, dict):
        return default
    fields = schema.get("properties", {})
    return {
        name: value
        for name, value in default.items()
        if value is not None and value != fields.get(name, {}).get("default")
    }
