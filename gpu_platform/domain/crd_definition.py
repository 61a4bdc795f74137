"""What a CustomResourceDefinition is made of, and how it is put together. Ours are in `crds`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpu_platform.domain.names import GROUP, VERSION
from gpu_platform.domain.openapi_schema import Schema, build_schema
from gpu_platform.domain.value import Value

Crd = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """A CEL expression that must be true, and the sentence for when it is not."""

    cel: str
    message: str
    field: str | None = None
    """The field that the refusal names, below the place of the rule."""

    def to_json(self) -> Schema:
        place = {"fieldPath": f".{self.field}"} if self.field else {}
        return {"rule": self.cel, "message": self.message, **place}


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; a detail is shown with `-o wide` only."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    detail: bool = False

    def to_json(self) -> Schema:
        priority = {"priority": 1} if self.detail else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **priority}


@dataclass(frozen=True)
class Kind:
    """All that sets one of our kinds apart. `rules` and `list_keys` are by place in the schema."""

    name: str
    short_name: str
    description: str
    spec: type[Value]
    columns: tuple[Column, ...]
    status: type[Value] | None = None
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    list_keys: Mapping[str, str] = field(default_factory=dict)
    selectable: tuple[str, ...] = ()
    """Fields that a list or a watch can be narrowed to by the API server itself."""


def build_crd(kind: Kind) -> Crd:
    singular = kind.name.lower()
    plural = f"{singular}s"
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.to_json() for column in kind.columns],
        "schema": {"openAPIV3Schema": _object_schema(kind)},
    }
    if kind.status:
        version["subresources"] = {"status": {}}
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": kind.scope,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": plural,
                "singular": singular,
                "shortNames": [kind.short_name],
            },
            "versions": [version],
        },
    }


def _object_schema(kind: Kind) -> Schema:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": build_schema(kind.spec),
    }
    if kind.status:
        properties["status"] = build_schema(kind.status)
    schema = {"description": kind.description, "type": "object", "required": ["spec"], "properties": properties}
    for place, rules in kind.rules.items():
        _find(schema, place)["x-kubernetes-validations"] = [rule.to_json() for rule in rules]
    for place, key in kind.list_keys.items():
        _find(schema, place).update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})
    return schema


def _find(schema: Schema, place: str) -> Schema:
    for name in place.split(".") if place else ():
        schema = schema["properties"][name]
    return schema
