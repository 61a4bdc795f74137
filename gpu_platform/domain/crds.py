"""The CustomResourceDefinitions of our kinds, built from their models; `infra/crds/` holds them as files.

The API server refuses here what can never be meant: unknown words, numbers out of range, a change of what is
fixed. It lets pass what the reconciler answers with a status and a reason: a GPUUnit with a bad `memory`
(InvalidSpec), with an `access` that names no port (AccessConfigInvalid) or with a storage that is not there
(StorageMountInvalid).

A schema is structural OpenAPI. Against the JSON Schema that pydantic writes, it is flat (no references), says
"optional" by leaving a field out of `required` (no union with null), and has a name of its own for free-form
objects. A keyword without a place here is an error, so that no constraint gets lost on the way to the API server.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from gpu_platform.domain.functions import FUNCTION_NAME_LIMIT, GPUFunctionSpec, GPUFunctionStatus
from gpu_platform.domain.names import GROUP, UNIT_NAME_LIMIT, VERSION
from gpu_platform.domain.operations import FINAL_PHASES, OperationSpec, OperationStatus
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import POOL_NAME_LIMIT, StockPoolSpec, StockPoolStatus
from gpu_platform.domain.storages import GPUStorageSpec, GPUStorageStatus
from gpu_platform.domain.units import GPUUnitSpec, GPUUnitStatus
from gpu_platform.domain.value import Value

Schema = dict[str, Any]

COPIED = (
    *("type", "format", "enum", "pattern", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)

TRANSLATED = ("description", "default", "required", "properties", "additionalProperties", "items")
DROPPED = ("title",)
LARGEST_INT32 = 2**31 - 1
Crd = dict[str, Any]

SPEC_NAME_LIMIT = 63
"""A spec's name is a label value too."""

ANY_UNIT_NAME_LIMIT = 50
"""Stock units are called after their pool, with an ordinal; the API holds tenants to `UNIT_NAME_LIMIT`."""

OPERATION_HAS_ENDED = f"oldSelf.?status.phase.orValue('') in {[str(phase) for phase in FINAL_PHASES]}"


def build_schema(model: type[BaseModel]) -> Schema:
    """The schema that accepts what the model accepts, and fills in the defaults that the model fills in."""
    document = model.model_json_schema(by_alias=True)
    return _translate(document, document.pop("$defs", {}))


def fill_defaults(schema: Schema, value: Any) -> Any:
    """The value with the defaults of its schema, as the API server fills them in. Unknown fields stay."""
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        given = {**{name: field["default"] for name, field in fields.items() if "default" in field}, **value}
        return {name: fill_defaults(fields.get(name, {}), each) for name, each in given.items()}
    if isinstance(value, list):
        return [fill_defaults(schema.get("items", {}), each) for each in value]
    return value


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


def name_is_short(limit: int) -> Rule:
    return Rule(
        f"self.metadata.name.size() <= {limit}", f"the name must have at most {limit} characters", "metadata.name"
    )


def name_has_no_dots() -> Rule:
    """Because Services are called after it."""
    return Rule("!self.metadata.name.contains('.')", "the name must have no dots", "metadata.name")


def is_fixed(name: str, why: str, *, optional: bool = False) -> Rule:
    same = f"self.{name} == oldSelf.{name}"
    if optional:
        same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
    return Rule(same, f"{name} cannot be changed: {why}", name)


def is_fixed_once_set(name: str, why: str) -> Rule:
    same = f"has(self.{name}) && self.{name} == oldSelf.{name}"
    return Rule(f"!has(oldSelf.{name}) || ({same})", f"{name} cannot be changed: {why}", name)


def is_amount(name: str) -> Rule:
    return Rule(
        f"isQuantity(self.{name}) && quantity(self.{name}).isGreaterThan(quantity('0'))",
        f"{name} must be a quantity of more than zero, such as 16Gi, 500m or 2",
        name,
    )


AGE = Column("Age", ".metadata.creationTimestamp", "date")

GPU_SPEC = Kind(
    "GPUSpec",
    "gspec",
    "An entry of the catalogue: the size and the place that a specName stands for.",
    GPUSpecSpec,
    scope="Cluster",
    columns=(
        Column("CPU", ".spec.cpu"),
        Column("Memory", ".spec.memory"),
        Column("GPU", ".spec.gpu", "integer"),
        Column("Product", ".spec.gpuProduct"),
        Column("Price", ".spec.pricePerHour"),
        AGE,
    ),
    rules={
        "": (name_is_short(SPEC_NAME_LIMIT),),
        # A GPUSpec has no status to say it in, and cannot be mended later.
        "spec": (
            is_amount("cpu"),
            is_amount("memory"),
            *(
                is_fixed(
                    info.alias or name,
                    "units were built from it; make another GPUSpec",
                    optional=info.default is None,
                )
                for name, info in GPUSpecSpec.model_fields.items()
                if name != "price_per_hour"
            ),
        ),
    },
)

STOCK_POOL = Kind(
    "StockPool",
    "spool",
    "Warm stock of one spec: units that hold their GPUs and wait for an image.",
    StockPoolSpec,
    status=StockPoolStatus,
    columns=(
        Column("Spec", ".spec.specName"),
        Column("Desired", ".spec.replicas", "integer"),
        Column("Available", ".status.available", "integer"),
        Column("Phase", ".status.phase"),
        AGE,
    ),
    rules={
        "": (name_is_short(POOL_NAME_LIMIT), name_has_no_dots()),
        "spec": (is_fixed("specName", "its stock was built from it; make another StockPool"),),
    },
    list_keys={"status.conditions": "type"},
)

GPU_UNIT = Kind(
    "GPUUnit",
    "gunit",
    "A running image with GPUs, or the stock that one is made from.",
    GPUUnitSpec,
    status=GPUUnitStatus,
    columns=(
        Column("Spec", ".spec.specName"),
        Column("Phase", ".status.phase"),
        Column("Access", ".status.accessURL"),
        AGE,
        Column("Node", ".status.nodeName", detail=True),
        Column("GPU", ".spec.gpu", "integer", detail=True),
        Column("Image", ".spec.image", detail=True),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', detail=True),
    ),
    rules={
        "": (name_is_short(ANY_UNIT_NAME_LIMIT), name_has_no_dots()),
        "spec": (
            is_fixed("specName", "the unit holds GPUs of that spec"),
            is_fixed_once_set("memory", "the unit keeps its size"),
            is_fixed_once_set("gpu", "the unit keeps its size"),
        ),
        "spec.template.ports": (
            Rule(
                "self.all(p, self.exists_one(q, q.port == p.port && q.protocol == p.protocol))",
                "a port number may stand only once for each protocol",
            ),
        ),
        "spec.storageMounts": (
            Rule(
                "self.all(m, m.mountPath.startsWith('/') && m.mountPath != '/')",
                "a mountPath must be an absolute path below /, such as /data",
            ),
            Rule(
                "self.all(m, self.exists_one(n, n.mountPath == m.mountPath))",
                "a mountPath may stand only once",
            ),
        ),
        **{
            f"spec.template.probes.{probe}": (
                Rule(
                    "[has(self.http), has(self.tcp), has(self.command)].exists_one(given, given)",
                    "a probe has exactly one of http, tcp and command",
                ),
            )
            for probe in ("startup", "readiness", "liveness")
        },
    },
    list_keys={
        "spec.template.envs": "name",
        "spec.template.ports": "name",
        "spec.storageMounts": "name",
        "status.conditions": "type",
    },
    selectable=(".spec.specName", ".status.phase"),
)

GPU_STORAGE = Kind(
    "GPUStorage",
    "gstore",
    "A volume that outlives the units which mount it, filled once where that is asked for.",
    GPUStorageSpec,
    status=GPUStorageStatus,
    columns=(
        Column("Size", ".spec.size"),
        Column("Capacity", ".status.capacity"),
        Column("Phase", ".status.phase"),
        AGE,
        Column("Class", ".spec.storageClassName", detail=True),
        Column("Mounted-By", ".status.mountedBy", detail=True),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', detail=True),
    ),
    rules={
        "": (
            name_is_short(UNIT_NAME_LIMIT),
            name_has_no_dots(),
            Rule(
                "self.spec.?prepare.?fromStorageName.orValue('') != self.metadata.name",
                "a storage cannot be a copy of itself",
                "spec.prepare.fromStorageName",
            ),
        ),
        "spec": (
            is_amount("size"),
            Rule(
                "!isQuantity(self.size) || !isQuantity(oldSelf.size)"
                " || !quantity(self.size).isLessThan(quantity(oldSelf.size))",
                "a storage cannot shrink: size must be no less than it was",
                "size",
            ),
            is_fixed("storageClassName", "the claim was made from it; make another GPUStorage", optional=True),
            is_fixed("prepare", "the storage was filled by it; make another GPUStorage", optional=True),
        ),
        "spec.prepare": (
            Rule("has(self.fromImage) != has(self.fromStorageName)", "prepare has either fromImage or fromStorageName"),
            Rule(
                "has(self.fromImage) == (self.command.size() + self.args.size() > 0)",
                "command or args go with fromImage, and only with it",
            ),
        ),
    },
    list_keys={"status.conditions": "type"},
    selectable=(".status.phase",),
)

GPU_FUNCTION = Kind(
    "GPUFunction",
    "gfn",
    "Code that answers calls, and the workers that run it.",
    GPUFunctionSpec,
    status=GPUFunctionStatus,
    columns=(
        Column("Spec", ".spec.specName"),
        Column("Workers", ".status.workers", "integer"),
        Column("Ready", ".status.readyWorkers", "integer"),
        Column("Phase", ".status.phase"),
        AGE,
        Column("Image", ".spec.image", detail=True),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', detail=True),
    ),
    rules={
        "": (name_is_short(FUNCTION_NAME_LIMIT), name_has_no_dots()),
        "spec": (
            is_fixed("specName", "its workers hold GPUs of that spec; make another GPUFunction"),
            Rule("self.minWorkers <= self.maxWorkers", "minWorkers must not be more than maxWorkers", "minWorkers"),
        ),
    },
    list_keys={
        "spec.template.envs": "name",
        "spec.template.ports": "name",
        "status.conditions": "type",
    },
    selectable=(".spec.specName", ".status.phase"),
)

OPERATION = Kind(
    "Operation",
    "gop",
    "The record of one accepted request: it makes a retry harmless and a crash repairable.",
    OperationSpec,
    status=OperationStatus,
    columns=(
        Column("Kind", ".spec.kind"),
        Column("Target", ".spec.target.name"),
        Column("Phase", ".status.phase"),
        AGE,
    ),
    rules={
        # At the root, because a rule on the status does not see the status being removed.
        "": (
            Rule(
                f"!({OPERATION_HAS_ENDED}) || self.?status.phase == oldSelf.?status.phase",
                "an operation that has succeeded or failed stays so",
                "status.phase",
            ),
            Rule(
                f"self.spec == oldSelf.spec || ({OPERATION_HAS_ENDED} && dyn(self.spec.request) == {{}}"
                " && self.spec.operationID == oldSelf.spec.operationID && self.spec.kind == oldSelf.spec.kind"
                " && self.spec.requestHash == oldSelf.spec.requestHash && self.spec.target == oldSelf.spec.target)",
                "an operation's spec cannot be changed: it says what was accepted; only the request of one that has "
                "succeeded or failed may be emptied",
                "spec",
            ),
        ),
    },
    selectable=(".spec.kind", ".status.phase"),
)

KINDS = (GPU_SPEC, STOCK_POOL, GPU_UNIT, GPU_STORAGE, GPU_FUNCTION, OPERATION)


def build_crds() -> tuple[Crd, ...]:
    return tuple(build_crd(kind) for kind in KINDS)
