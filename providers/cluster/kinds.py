"""Our resources and the custom resources that they stand for."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.crds import POOL_NAME_LIMIT, SPEC_NAME_LIMIT
from gpu_platform.domain.functions import NAME_RULE as FUNCTION_NAME_RULE
from gpu_platform.domain.functions import is_function_name
from gpu_platform.domain.gpu_functions import GPUFunctionSpec
from gpu_platform.domain.gpu_storages import GPUStorageSpec
from gpu_platform.domain.gpu_units import GPUUnitSpec
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock_pools import StockPoolSpec
from gpu_platform.domain.storages import NAME_RULE as STORAGE_NAME_RULE
from gpu_platform.domain.tenants import DEFAULT_TENANT, tenant_namespace, tenant_of
from gpu_platform.domain.value import Value
from gpu_platform.kube import ResourcePath
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_SPECS, GPU_STORAGES, GPU_UNITS, STOCK_POOLS
from providers.cluster.package import GPU_FUNCTION, GPU_SPEC, GPU_STORAGE, GPU_UNIT, STOCK_POOL

Json = dict[str, Any]

DOTTED_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


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
        return (*tenant, "name", "spec", "operationID", "requestHash", "objectUID")

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
            f"should be 1 to {names.UNIT_NAME_LIMIT} lower-case letters, digits and inner hyphens",
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
            STORAGE_NAME_RULE,
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
