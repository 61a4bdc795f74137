"""Claimed stock on the real API server, attacked by Operations that another tenant made by hand."""

import secrets

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind, OperationSpec, OperationTarget
from gpu_platform.domain.stock import Claim, claim_of
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, OPERATIONS
from gpu_platform.store.ledger import build_operation
from tests.support.cluster_processes import wait_passes
from tests.support.clusters import RunningCluster
from tests.support.units_and_stock import INSTANCES, STOCK, claim_oldest, find, stock_of, stock_pool
from tests.support.waiting import NotYet, eventually


async def create_operation(
    kube: KubeClient, name: str, kind: OperationKind, namespace: str, target: tuple[str, str], request: Json
) -> str:
    """Returns the path of the Operation."""
    spec = OperationSpec(
        operation_id=name,
        kind=kind,
        request_hash="a" * 64,
        request=request,
        target=OperationTarget(kind="GPUUnit", namespace=target[0], name=target[1]),
    )
    await kube.create(OPERATIONS.collection(namespace), build_operation(name, namespace, spec))
    return OPERATIONS.item(name, namespace)


async def wait_handled(kube: KubeClient, path: str) -> None:
    """Until the operations controller has removed the Operation, or has ended it."""

    async def is_handled() -> bool | NotYet:
        operation = await find(kube, path)
        status = (operation or {}).get("status") or {}
        return operation is None or status.get("phase") in ("Succeeded", "Failed") or NotYet(operation)

    await eventually(is_handled)


@pytest.mark.parametrize(
    ("is_of_victim", "is_readable"),
    [
        pytest.param(False, False, id="unreadable-request"),
        pytest.param(False, True, id="a-unit-of-its-own"),
        pytest.param(True, True, id="the-victims-unit"),
    ],
)
async def test_an_operation_made_by_hand_gets_nothing_of_another_tenants_claimed_stock(
    kube: KubeClient, cluster: RunningCluster, namespace: str, is_of_victim: bool, is_readable: bool
) -> None:
    pool = f"claimed-{secrets.token_hex(3)}"
    unit, operation = f"unit-{secrets.token_hex(3)}", f"op-{secrets.token_hex(20)}"
    async with stock_pool(kube, pool, 1):
        # A preview stays open for ten minutes: while it does, nothing but the attack can end the claim.
        kept = await create_operation(kube, operation, OperationKind.PREVIEW_UNIT, INSTANCES, (INSTANCES, unit), {})
        claim = Claim(names.claim_holder(INSTANCES, unit), operation)
        stock = await claim_oldest(kube, await stock_of(kube, pool), "g1.1", claim.holder, claim.operation)
        try:
            target = (INSTANCES if is_of_victim else namespace, unit)
            request = {"name": unit, "specName": "g1.1", "image": "example/train"} if is_readable else {"name": 1}
            forged = await create_operation(kube, operation, OperationKind.CREATE_UNIT, namespace, target, request)
            await wait_handled(kube, forged)
            await wait_passes(cluster, "orphans", 2)

            now = await kube.get(GPU_UNITS.item(stock["metadata"]["name"], STOCK))
            assert claim_of(now) == claim
            assert (await kube.get(GPU_UNITS.collection(namespace)))["items"] == []
        finally:
            await kube.delete(kept)
