"""Stacks: what the API accepted, kept by Pulumi; one stack per object, and who does what when the records differ."""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from gpu_platform.domain import names
from gpu_platform.domain.gpu_functions import GPUFunctionSpec
from gpu_platform.domain.gpu_storages import GPUStorageSpec
from gpu_platform.domain.gpu_units import GPUUnitSpec
from gpu_platform.domain.metadata import BadMetadata, annotations_of, bad_metadata, parse_annotation
from gpu_platform.domain.operations import OPERATORS
from gpu_platform.domain.stock_pools import StockPoolSpec
from gpu_platform.domain.tenants import tenant_namespace, tenant_of
from gpu_platform.domain.value import Value

Json = dict[str, Any]

STOCK_TENANT = "stock"
"""Stands in the stacks of pools, which no tenant owns. Their project is another one, so a tenant may have the name."""


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
