"""The package's schema, from the models: what editors, generated SDKs and `pulumi package get-schema` read."""

from collections.abc import Iterator
from typing import Any

from providers.cluster.inputs import PROVENANCE
from providers.cluster.kinds import KINDS, Kind
from providers.cluster.package import PACKAGE, VERSION

Json = dict[str, Any]

DEFINITIONS = "#/$defs/"
PLAIN = ("string", "integer", "number", "boolean")

INPUTS: Json = {
    "tenant": {"type": "string", "default": "default", "description": "Whose it is."},
    "name": {"type": "string", "description": "What the object is called; another one is another object."},
    "operationID": {
        "type": "string",
        "description": "The request that it comes from; else the resource itself.",
    },
    "requestHash": {"type": "string", "description": "SHA-256 of that request."},
    "objectUID": {
        "type": "string",
        "description": "The object that came of it last: once its end was asked for, it is not made again.",
    },
}
OUTPUTS: Json = {
    "namespace": {"type": "string", "description": "Where the object lives."},
    "uid": {"type": "string", "description": "That very object, not another one of its name."},
    "acceptedHash": {"type": "string", "description": "SHA-256 of what was accepted for it."},
}


def build_package_schema() -> Json:
    return {
        "name": PACKAGE,
        "version": VERSION,
        "displayName": "GPU platform",
        "description": "GPU units, storages, functions, stock pools and the catalogue of the GPU platform.",
        "license": "Apache-2.0",
        "types": {token: each for kind in KINDS.values() for token, each in _types(kind)},
        "resources": {token: _resource(kind) for token, kind in KINDS.items()},
    }


def _resource(kind: Kind) -> Json:
    spec = {"$ref": _reference(kind.model.__name__), "description": f"As in a {kind.name}."}
    inputs = {**{name: INPUTS[name] for name in kind.inputs if name in INPUTS}, "spec": spec}
    outputs = {name: each for name, each in OUTPUTS.items() if name != "namespace" or kind.path.namespaced}
    always = [name for name in inputs if name not in PROVENANCE]
    return {
        "description": _words(kind.model.__doc__ or ""),
        "inputProperties": inputs,
        "requiredInputs": ["name", "spec"],
        "properties": {**inputs, **outputs},
        "required": [*always, *outputs],
    }


def _types(kind: Kind) -> Iterator[tuple[str, Json]]:
    document = kind.model.model_json_schema(by_alias=True)
    inner = document.pop("$defs", {})
    for name, node in {kind.model.__name__: document, **inner}.items():
        yield (
            f"{PACKAGE}:index:{name}",
            {
                "type": "object",
                "description": _words(node.get("description", "")),
                "properties": {field: _property(each) for field, each in node["properties"].items()},
                "required": node.get("required", []),
            },
        )


def _property(node: Json) -> Json:
    described = {"description": _words(node["description"])} if "description" in node else {}
    match node:
        case {"anyOf": [inner, {"type": "null"}]}:
            return {**_property(inner), **described}
        case {"$ref": str(reference)}:
            return {"$ref": _reference(reference.removeprefix(DEFINITIONS)), **described}
        case {"type": "array", "items": items}:
            return {"type": "array", "items": _property(items), **described}
        case {"type": "object", "additionalProperties": dict(values)}:
            return {"type": "object", "additionalProperties": _property(values), **described}
        case {"type": str(kind)} if kind in PLAIN:
            default = {"default": node["default"]} if node.get("default") is not None else {}
            return {"type": kind, **described, **default}
    raise ValueError(f"Pulumi's schema has no word for this: {node}")


def _reference(name: str) -> str:
    return f"#/types/{PACKAGE}:index:{name}"


def _words(text: str) -> str:
    return " ".join(text.split())
