"""Three writes in a row by a client without a platform: what accepting a unit is compared with.

| write                                   | its counterpart in accepting a unit |
| --------------------------------------- | ----------------------------------- |
| create an Operation                     | the ledger                          |
| patch the annotations of a GPUUnit, as it was seen | the claim                |
| create a GPUUnit                        | the unit                            |

On copies of the platform's own kinds in another group: bodies, schemas and rules are the same, but nobody watches
them, so that a bare write is followed by nothing.
"""

import asyncio
import time
from copy import deepcopy
from functools import partial

from gpu_platform.domain import names
from gpu_platform.domain.crds import Crd, build_crds
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import (
    OperationKind,
    OperationSpec,
    OperationTarget,
    operation_name,
    request_hash,
)
from gpu_platform.domain.units import UnitRequest, build_unit
from gpu_platform.kube import KubeClient, KubeError, ResourcePath
from gpu_platform.store.ledger import build_operation
from tests.bench.workloads import BARE
from tests.support.waiting import eventually

GROUP = "bench.example.com"
API_VERSION = f"{GROUP}/{names.VERSION}"
CRDS = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
UNITS = ResourcePath(API_VERSION, "gpuunits")
OPERATIONS = ResourcePath(API_VERSION, "operations")


class BareWrites:
    def __init__(self, kube: KubeClient, stock: Json) -> None:
        self._kube = kube
        self._stock = stock

    async def time(self, request: UnitRequest) -> float:
        """What the platform works out for itself is ready here before the clock starts."""
        operation, unit = build_bodies(request, self._stock)
        metadata = self._stock["metadata"]
        claim = {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {
                names.ANNOTATION_CLAIMED_BY: names.claim_holder(BARE, request.name),
                names.ANNOTATION_OPERATION_ID: operation["metadata"]["name"],
            },
        }
        started_at = time.perf_counter()
        await self._kube.create(OPERATIONS.collection(BARE), operation)
        self._stock = await self._kube.patch(UNITS.item(metadata["name"], BARE), {"metadata": claim})
        await self._kube.create(UNITS.collection(BARE), unit)
        return time.perf_counter() - started_at


async def prepare_bare_writes(kube: KubeClient, stock: Json) -> BareWrites:
    """The copies of the kinds, and one of this stock unit."""
    for crd in map(copy_crd, build_crds()):
        await kube.create(CRDS.collection(), crd)
    await asyncio.gather(*(eventually(partial(_is_served, kube, path)) for path in (UNITS, OPERATIONS)))
    metadata = {key: stock["metadata"][key] for key in ("name", "labels")}
    body = {"apiVersion": API_VERSION, "kind": "GPUUnit", "metadata": metadata, "spec": stock["spec"]}
    return BareWrites(kube, await kube.create(UNITS.collection(BARE), body))


def build_bodies(request: UnitRequest, stock: Json) -> tuple[Json, Json]:
    """The Operation and the unit of this request, as the platform would write them, but of the copied kinds."""
    operation_id = f"op-{request.name}"
    spec = OperationSpec(
        operation_id=operation_id,
        kind=OperationKind.CREATE_UNIT,
        request_hash=request_hash(request),
        request=request.to_json(),
        target=OperationTarget(kind="GPUUnit", namespace=BARE, name=request.name),
    )
    operation = build_operation(operation_name(BARE, operation_id), BARE, spec)
    unit = build_unit(request, BARE, stock, operation_id, spec.request_hash)
    return {**operation, "apiVersion": API_VERSION}, {**unit, "apiVersion": API_VERSION}


def copy_crd(crd: Crd) -> Crd:
    """The same kind in the other group, without its short names, which belong to the first one."""
    copied = deepcopy(crd)
    copied["metadata"]["name"] = f"{crd['spec']['names']['plural']}.{GROUP}"
    copied["spec"]["group"] = GROUP
    del copied["spec"]["names"]["shortNames"]
    return copied


async def _is_served(kube: KubeClient, path: ResourcePath) -> bool:
    try:
        await kube.get(path.collection(BARE))
    except KubeError:
        # Not known yet, or known and not open yet.
        return False
    return True
