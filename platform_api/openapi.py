"""The API's own description: FastAPI's, with the bodies that `decoding` reads and without what never happens."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from gpu_platform.domain.value import Value
from platform_api.http.bodies import REF_TEMPLATE
from platform_api.http.envelope import JSON, ErrorEnvelope

ERROR_REFERENCE = {"$ref": REF_TEMPLATE.format(model=ErrorEnvelope.__name__)}
NEVER_ANSWERED = "422"
UNUSED = ("HTTPValidationError", "ValidationError")


def describe(app: FastAPI, bodies: tuple[type[Value], ...]) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in UNUSED:
        schemas.pop(name, None)
    models: list[Any] = [(model, "validation") for model in (*bodies, ErrorEnvelope)]
    _, definitions = models_json_schema(models, ref_template=REF_TEMPLATE)
    for name, schema in definitions["$defs"].items():
        schemas.setdefault(name, schema)
    for model in bodies:
        _forbid_unknown(schemas, model.__name__)
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop(NEVER_ANSWERED, None)
            refused = {"description": "Refused, with the reason", "content": {JSON: {"schema": ERROR_REFERENCE}}}
            operation["responses"].setdefault("default", refused)
            is_optional = operation.pop("x-optional-key", False)
            operation["security"] = [*([{}] if is_optional else []), {"key": []}]
    return document


def _forbid_unknown(schemas: dict[str, Any], name: str) -> None:
    """Bodies are read strictly, whatever their models do elsewhere."""
    schema = schemas[name]
    if schema.get("type") != "object" or schema.get("additionalProperties") is False:
        return
    schema["additionalProperties"] = False
    for reference in _references(schema):
        _forbid_unknown(schemas, reference)


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
        return own + [name for value in node.values() for name in _references(value)]
    if isinstance(node, list):
        return [name for value in node for name in _references(value)]
    return []
