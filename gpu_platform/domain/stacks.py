"""Stacks: what the API accepted, kept by Pulumi, one stack per object; and the index of stacks, one Lease per stack,
which says what is recorded and who works on it now.

A Lease stands before its stack is made and is deleted after its stack is removed: what has no Lease has no stack.
"""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import (
    BadMetadata,
    annotations_of,
    bad_metadata,
    labels_of,
    parse_annotation,
    parse_instant,
)
from gpu_platform.domain.operations import OPERATORS
from gpu_platform.domain.stock import StockPoolSpec
from gpu_platform.domain.storages import GPUStorageSpec
from gpu_platform.domain.tenants import tenant_namespace, tenant_of
from gpu_platform.domain.units import GPUUnitSpec
from gpu_platform.domain.value import Value

STOCK_TENANT = "stock"
"""Stands in the stacks of pools, which no tenant owns. Their project is another one, so a tenant may have the name."""

LABEL_KIND = f"{names.GROUP}/stack-kind"
LABEL_TENANT = f"{names.GROUP}/tenant"
LABEL_OBJECT = f"{names.GROUP}/stack-object"
ANNOTATION_UID = f"{names.GROUP}/stack-uid"
ANNOTATION_RECORDED_AT = f"{names.GROUP}/recorded-at"
ANNOTATION_OUTPUTS = f"{names.GROUP}/stack-outputs"
ANNOTATION_RESOURCES = f"{names.GROUP}/stack-resources"
ANNOTATION_ERROR = f"{names.GROUP}/stack-error"
ANNOTATION_FAILURES = f"{names.GROUP}/stack-failures"
COUNT_DIGITS = 9

ERROR_LIMIT = 1_000
"""Characters of an error that are kept: enough to say what is wrong, in an object that is read often."""


class StackKind(StrEnum):
    """What a stack is about. It is also the name of the stack's Pulumi project."""

    GPU_UNIT = "gpu-unit"
    GPU_STORAGE = "gpu-storage"
    GPU_FUNCTION = "gpu-function"
    STOCK_POOL = "stock-pool"


OBJECT_KINDS = {
    "GPUUnit": StackKind.GPU_UNIT,
    "GPUStorage": StackKind.GPU_STORAGE,
    "GPUFunction": StackKind.GPU_FUNCTION,
    "StockPool": StackKind.STOCK_POOL,
}

SPECS: dict[StackKind, type[Value]] = {
    StackKind.GPU_UNIT: GPUUnitSpec,
    StackKind.GPU_STORAGE: GPUStorageSpec,
    StackKind.GPU_FUNCTION: GPUFunctionSpec,
    StackKind.STOCK_POOL: StockPoolSpec,
}


@dataclass(frozen=True)
class StackAddress:
    """Which stack. Tenants and names are DNS labels, so a dot between them makes every address another one."""

    kind: StackKind
    tenant: str
    name: str

    @property
    def project(self) -> str:
        return self.kind.value

    @property
    def stack(self) -> str:
        """Its name within the project."""
        return f"{self.tenant}.{self.name}"

    @property
    def full_name(self) -> str:
        """What people and programs are told: `gpu-unit/default.web`."""
        return f"{self.project}/{self.stack}"

    @property
    def lease(self) -> str:
        """Its entry in the index of stacks: a Lease of this name in the platform's namespace."""
        return f"{self.kind}.{self.stack}"

    @property
    def namespace(self) -> str:
        """Where its object lives."""
        return names.STOCK_NAMESPACE if self.kind is StackKind.STOCK_POOL else tenant_namespace(self.tenant)

    @property
    def ledger_tenant(self) -> str:
        """In whose ledger the operations on its object are."""
        return OPERATORS if self.kind is StackKind.STOCK_POOL else self.tenant


@dataclass(frozen=True)
class Intent:
    """What the API accepted for one object: all that its stack needs to say it, or to make it again."""

    address: StackAddress
    uid: str
    accepted_spec: str
    """The annotation's text. The spec as it is now may be another one."""

    operation_id: str
    request_hash: str

    @property
    def spec(self) -> Json:
        spec: Json = json.loads(self.accepted_spec)
        return spec

    @property
    def accepted_hash(self) -> str:
        return accepted_hash(self.accepted_spec)


def parse_address(project: str, stack: str) -> StackAddress | None:
    """The address with this project and stack name."""
    tenant, dot, name = stack.partition(".")
    return StackAddress(StackKind(project), tenant, name) if dot and project in set(StackKind) else None


def accepted_hash(accepted_spec: str) -> str:
    """Of the annotation's text. Two specs with one hash are one spec."""
    return hashlib.sha256(accepted_spec.encode()).hexdigest()


def address_of(item: Json) -> StackAddress | None:
    """The stack that this object has, would have, or had; None for a kind or a place without stacks."""
    kind = OBJECT_KINDS.get(item["kind"])
    metadata = item["metadata"]
    if kind is StackKind.STOCK_POOL:
        return StackAddress(kind, STOCK_TENANT, metadata["name"])
    tenant = tenant_of(metadata["namespace"]) if kind else None
    return StackAddress(kind, tenant, metadata["name"]) if kind and tenant else None


def intent_of(item: Json) -> Intent | None:
    """The intent; None for an object that is not ours to record: the API did not accept it, another stack owns it, or
    its accepted spec cannot be read."""
    intent = read_intent(item)
    return intent if isinstance(intent, Intent) else None


def read_intent(item: Json) -> Intent | BadMetadata | None:
    """The intent, or why its accepted spec cannot be read; None for an object that is not ours to record."""
    annotations = annotations_of(item)
    address = address_of(item)
    text = annotations.get(names.ANNOTATION_ACCEPTED_SPEC)
    if address is None or text is None or names.ANNOTATION_OWNER_STACK in annotations:
        return None
    try:
        check_accepted_spec(address.kind, text)
    except ValueError as error:
        return bad_metadata(item, names.ANNOTATION_ACCEPTED_SPEC, str(error))
    return Intent(
        address=address,
        uid=item["metadata"]["uid"],
        accepted_spec=text,
        operation_id=annotations.get(names.ANNOTATION_OPERATION_ID, ""),
        request_hash=annotations.get(names.ANNOTATION_REQUEST_HASH, ""),
    )


def as_accepted(item: Json) -> Json:
    """The object as it was accepted, whatever somebody has edited since; as it is, when that is not ours to say."""
    intent = intent_of(item)
    return {**item, "spec": intent.spec} if intent is not None else item


def stack_name_of(item: Json) -> str | None:
    """The stack that keeps this object, recorded yet or not; None for an object that is not ours to record."""
    intent = intent_of(item)
    return intent.address.full_name if intent is not None else None


def check_accepted_spec(kind: StackKind, text: str) -> str:
    """Returns the text. ValueError with the reason when it is no spec of this kind: every reader relies on it."""
    spec = parse_annotation(text)
    try:
        SPECS[kind].model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "spec"
        raise ValueError(f"it does not fit the schema of this version: {field}: {first['msg']}") from None
    return text


@dataclass(frozen=True)
class Recorded:
    """What the stack says, once Pulumi has ended well."""

    accepted_spec: str
    """The annotation's text, as it was recorded: with it the object can be made again."""

    operation_id: str
    request_hash: str
    at: datetime
    resources: int = 0
    outputs: Json = field(default_factory=dict)

    @property
    def accepted_hash(self) -> str:
        return accepted_hash(self.accepted_spec)


@dataclass(frozen=True)
class StackRecord:
    """A Lease of the index, read."""

    address: StackAddress
    uid: str
    """Of the object that the stack is about: a later one of its name has another."""

    recorded: Recorded | None = None
    """None: nothing yet, though Pulumi may have begun."""

    error: str | None = None
    failures: int = 0
    """In a row."""

    @property
    def intent(self) -> Intent | None:
        """What was recorded, to make its object again."""
        if self.recorded is None:
            return None
        return Intent(
            address=self.address,
            uid=self.uid,
            accepted_spec=self.recorded.accepted_spec,
            operation_id=self.recorded.operation_id,
            request_hash=self.recorded.request_hash,
        )


def is_recorded(record: StackRecord | None, intent: Intent) -> bool:
    """Whether the stack says what was accepted for this very object."""
    recorded = record.recorded if record is not None and record.uid == intent.uid else None
    return recorded is not None and recorded.accepted_hash == intent.accepted_hash


def record_labels(address: StackAddress) -> dict[str, str]:
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE,
        LABEL_KIND: address.kind.value,
        LABEL_TENANT: address.tenant,
        LABEL_OBJECT: address.name,
    }


def record_annotations(record: StackRecord) -> dict[str, str]:
    """All of them: what is not said any more is gone from the Lease too."""
    annotations = {ANNOTATION_UID: record.uid}
    if record.recorded is not None:
        annotations |= {
            names.ANNOTATION_ACCEPTED_SPEC: record.recorded.accepted_spec,
            names.ANNOTATION_OPERATION_ID: record.recorded.operation_id,
            names.ANNOTATION_REQUEST_HASH: record.recorded.request_hash,
            ANNOTATION_RECORDED_AT: record.recorded.at.isoformat(),
            ANNOTATION_RESOURCES: str(record.recorded.resources),
            ANNOTATION_OUTPUTS: json.dumps(record.recorded.outputs, sort_keys=True),
        }
    if record.error is not None:
        annotations |= {ANNOTATION_ERROR: record.error[:ERROR_LIMIT], ANNOTATION_FAILURES: str(record.failures)}
    return annotations


def parse_record(lease: Json | None) -> StackRecord | None:
    """None for no Lease, for one that is not of the index, and for one that nobody can read any more."""
    if lease is None:
        return None
    labels, annotations = labels_of(lease), annotations_of(lease)
    try:
        address = StackAddress(StackKind(labels[LABEL_KIND]), labels[LABEL_TENANT], labels[LABEL_OBJECT])
        return StackRecord(
            address=address,
            uid=annotations[ANNOTATION_UID],
            recorded=_parse_recorded(address.kind, annotations),
            error=annotations.get(ANNOTATION_ERROR),
            failures=_parse_count(annotations, ANNOTATION_FAILURES),
        )
    except (KeyError, ValueError):
        return None


def _parse_recorded(kind: StackKind, annotations: dict[str, str]) -> Recorded | None:
    if ANNOTATION_RECORDED_AT not in annotations:
        return None
    return Recorded(
        accepted_spec=check_accepted_spec(kind, annotations[names.ANNOTATION_ACCEPTED_SPEC]),
        operation_id=annotations.get(names.ANNOTATION_OPERATION_ID, ""),
        request_hash=annotations.get(names.ANNOTATION_REQUEST_HASH, ""),
        at=parse_instant(annotations[ANNOTATION_RECORDED_AT]),
        resources=_parse_count(annotations, ANNOTATION_RESOURCES),
        outputs=_parse_outputs(annotations.get(ANNOTATION_OUTPUTS, "{}")),
    )


def _parse_count(annotations: dict[str, str], key: str) -> int:
    text = annotations.get(key, "0")
    if not text.isascii() or not text.isdecimal() or len(text) > COUNT_DIGITS:
        raise ValueError(f"{key} is not a count")
    return int(text)


def _parse_outputs(text: str) -> Json:
    outputs = parse_annotation(text)
    if not isinstance(outputs, dict):
        raise ValueError(f"{ANNOTATION_OUTPUTS} is not a JSON object")
    return outputs


class PropertyChange(Value):
    """One field that would change."""

    path: Annotated[str, Field(description="Where, such as spec.image.")]
    kind: Annotated[str, Field(description="add, delete or update; with -replace, the object would be made anew.")]
    old: Annotated[Any, Field(description="What the cluster says; absent where that is not known.")] = None
    new: Annotated[Any, Field(description="What was accepted; absent where that is not known.")] = None


class PreviewStep(Value):
    """What would be done with one resource of the stack."""

    op: Annotated[str, Field(description="create, update, replace, delete, or same: nothing.")]
    resource: Annotated[str, Field(description="Its name in the stack.")]
    type: Annotated[str, Field(description="Its type in Pulumi's words.")]
    properties: tuple[PropertyChange, ...] = ()


class PreviewResult(Value):
    """Everything that would be done."""

    changes: Annotated[dict[str, int], Field(description="Resources by what would be done with them.")]
    steps: tuple[PreviewStep, ...] = ()
