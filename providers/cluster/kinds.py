"""Our resources, the custom resources that they stand for, and the package's schema, which is made from their models:
what editors, generated SDKs and `pulumi package get-schema` read."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_platform.domain import names
from gpu_platform.domain.crds import SPEC_NAME_LIMIT
from gpu_platform.domain.functions import NAME_RULE as FUNCTION_NAME_RULE
from gpu_platform.domain.functions import GPUFunctionSpec, is_function_name
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import POOL_NAME_LIMIT, StockPoolSpec
from gpu_platform.domain.storages import GPUStorageSpec
from gpu_platform.domain.tenants import DEFAULT_TENANT, tenant_namespace, tenant_of
from gpu_platform.domain.units import GPUUnitSpec
from gpu_platform.domain.value import Value
from gpu_platform.kube import ResourcePath
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_SPECS, GPU_STORAGES, GPU_UNITS, STOCK_POOLS
from providers.cluster.resources import GPU_FUNCTION, GPU_SPEC, GPU_STORAGE, GPU_UNIT, PACKAGE, STOCK_POOL, VERSION

DOTTED_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")

PROVENANCE = ("operationID", "requestHash", "objectUID")
"""Where an object comes from. Nothing about it changes when this does."""

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


@dataclass(frozen=True)
class Kind:
    token: str
    name: str
    path: ResourcePath
    model: type[Value]
    is_name: Callable[[str], bool]
    name_rule: str
    fixed: frozenset[str]
    """Fields of the spec that an object keeps for its life."""

    fixed_once_set: frozenset[str] = frozenset()
    is_of_tenant: bool = False
    finalizers: tuple[str, ...] = ()
    """With which an object is made: it stays until whoever they are for lets it go."""

    has_accepted_spec: bool = True
    """Whether what was accepted stands in an annotation. Else it is what the spec says."""

    @property
    def inputs(self) -> tuple[str, ...]:
        tenant = ("tenant",) if self.is_of_tenant else ()
        return (*tenant, "name", "spec", *PROVENANCE)

    def namespace_of(self, inputs: Json) -> str | None:
        if self.is_of_tenant:
            return tenant_namespace(inputs["tenant"])
        return names.STOCK_NAMESPACE if self.path.namespaced else None


KINDS = {
    kind.token: kind
    for kind in (
        Kind(
            GPU_UNIT,
            "GPUUnit",
            GPU_UNITS,
            GPUUnitSpec,
            names.is_unit_name,
            names.UNIT_NAME_RULE,
            fixed=frozenset({"specName"}),
            fixed_once_set=frozenset({"memory", "gpu"}),
            is_of_tenant=True,
        ),
        Kind(
            GPU_STORAGE,
            "GPUStorage",
            GPU_STORAGES,
            GPUStorageSpec,
            names.is_unit_name,
            names.UNIT_NAME_RULE,
            fixed=frozenset({"storageClassName", "prepare"}),
            is_of_tenant=True,
            finalizers=(names.STORAGE_FINALIZER,),
        ),
        Kind(
            GPU_FUNCTION,
            "GPUFunction",
            GPU_FUNCTIONS,
            GPUFunctionSpec,
            is_function_name,
            FUNCTION_NAME_RULE,
            fixed=frozenset({"specName"}),
            is_of_tenant=True,
        ),
        Kind(
            STOCK_POOL,
            "StockPool",
            STOCK_POOLS,
            StockPoolSpec,
            lambda text: names.is_unit_name(text) and len(text) <= POOL_NAME_LIMIT,
            f"should be 1 to {POOL_NAME_LIMIT} lower-case letters, digits and inner hyphens",
            fixed=frozenset({"specName"}),
        ),
        Kind(
            GPU_SPEC,
            "GPUSpec",
            GPU_SPECS,
            GPUSpecSpec,
            lambda text: len(text) <= SPEC_NAME_LIMIT and DOTTED_NAME.fullmatch(text) is not None,
            f"should be 1 to {SPEC_NAME_LIMIT} lower-case letters, digits and inner hyphens and dots",
            fixed=frozenset(
                info.alias or name for name, info in GPUSpecSpec.model_fields.items() if name != "price_per_hour"
            ),
            has_accepted_spec=False,
        ),
    )
}


def get_kind(token: str) -> Kind:
    """ValueError for a type that is not ours."""
    kind = KINDS.get(token)
    if kind is None:
        raise ValueError(f"there is no resource {token!r}; there are {', '.join(KINDS)}")
    return kind


def build_id(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def parse_id(kind: Kind, text: str) -> tuple[str | None, str]:
    """Namespace and name. A name alone will do; what tenants have is the default tenant's then."""
    namespace, separator, name = text.rpartition("/")
    place = namespace if separator else kind.namespace_of({"tenant": DEFAULT_TENANT}) or ""
    if not kind.is_name(name) or not _is_place(kind, place):
        form = "namespace/name, with the namespace of a tenant" if kind.is_of_tenant else "name"
        raise ValueError(f"{text!r} is no {kind.name}'s id: write {form}")
    return place or None, name


def _is_place(kind: Kind, namespace: str) -> bool:
    if kind.is_of_tenant:
        return tenant_of(namespace) is not None
    return namespace == (kind.namespace_of({}) or "")


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
