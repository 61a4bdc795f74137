"""Rubbish in the metadata of some objects, on the real API server: the controllers report it and serve all others."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gpu_platform.devcluster.credentials import admin_tls
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import OperationKind, OperationSpec, OperationTarget
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import EVENTS, GPU_UNITS, OPERATIONS, SERVICES
from gpu_platform.store.ledger import build_operation
from reconciler.metadata_reports import UNREADABLE
from tests.support.clusters import RunningCluster
from tests.support.rubbish import RUBBISH
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    claim,
    create_unit,
    delete_unit,
    find,
    stock_pool,
    unit_body,
    wait_pool_available,
    wait_unit_phase,
)
from tests.support.waiting import NotYet, eventually

SIZE_LIMIT = 200_000
"""Of all annotations of an object. Kubernetes accepts 256 KiB; our client once read lines of a watch up to 128 KiB."""

ANNOTATIONS = tuple(
    value for name, value in sorted(vars(names).items()) if name.startswith("ANNOTATION_") and isinstance(value, str)
)


def spoil(text: str) -> dict[str, str]:
    """The text in every annotation that we read; a long one in the accepted spec only."""
    if len(text) * len(ANNOTATIONS) <= SIZE_LIMIT:
        return dict.fromkeys(ANNOTATIONS, text)
    return {names.ANNOTATION_ACCEPTED_SPEC: text[:SIZE_LIMIT]}


@asynccontextmanager
async def spoilt_units(kube: KubeClient, namespace: str, labels: Json, without: str = "") -> AsyncIterator[list[str]]:
    """Stopped units, one for each kind of rubbish."""
    made: list[str] = []
    try:
        for text in RUBBISH.values():
            name = f"rubbish-{secrets.token_hex(4)}"
            body = unit_body(name, namespace=namespace, running=False)
            marks = {key: value for key, value in spoil(text).items() if key != without}
            body["metadata"] |= {"annotations": marks, "labels": labels}
            await create_unit(kube, body)
            made.append(name)
        yield made
    finally:
        for name in made:
            await delete_unit(kube, name, namespace)


async def wait_reported(kube: KubeClient, namespace: str, unit: str, annotation: str) -> None:
    async def is_reported() -> bool | NotYet:
        answer = await kube.get(
            EVENTS.collection(namespace), {"fieldSelector": f"involvedObject.name={unit},reason={UNREADABLE}"}
        )
        said = [event["message"] for event in answer["items"]]
        return any(annotation in message for message in said) or NotYet(said)

    await eventually(is_reported)


@pytest.mark.parametrize("replenish", ["Always", "Never"])
async def test_a_shared_pool_serves_honest_units_beside_units_with_rubbish_in_every_annotation(
    kube: KubeClient, replenish: str
) -> None:
    pool, honest = f"shared-{secrets.token_hex(3)}", f"honest-{secrets.token_hex(3)}"
    # Without the owner, whose objects are not ours to record: all other annotations are read.
    without = names.ANNOTATION_OWNER_STACK
    async with (
        stock_pool(kube, pool, 1, replenish=replenish),
        spoilt_units(kube, INSTANCES, {names.LABEL_POOL: pool}, without) as spoilt,
    ):
        for name in spoilt:
            await wait_unit_phase(kube, name, "Stopped")
            await wait_reported(kube, INSTANCES, name, names.ANNOTATION_ACCEPTED_SPEC)
        try:
            stock = await claim(kube, pool, honest)
            await create_unit(kube, unit_body(honest, stock=stock))
            await wait_unit_phase(kube, honest, "Ready")
            if replenish == "Always":
                await wait_pool_available(kube, pool, 1)
        finally:
            await delete_unit(kube, honest)
        if replenish == "Never":
            # The unit gave its place back, and the pool makes one for it.
            await wait_pool_available(kube, pool, 1)


async def test_orphans_are_deleted_and_stock_is_served_beside_claims_full_of_rubbish(kube: KubeClient) -> None:
    pool, honest = f"beside-{secrets.token_hex(3)}", f"honest-{secrets.token_hex(3)}"
    lost = f"lost-{secrets.token_hex(3)}"
    labels = {names.LABEL_STOCK_STATE: names.STOCK_CLAIMED}
    async with spoilt_units(kube, STOCK, labels) as spoilt, stock_pool(kube, pool, 1):
        await kube.create(
            SERVICES.collection(INSTANCES),
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"unit-{lost}", "labels": names.unit_labels(lost)},
                "spec": {"ports": [{"port": 80}]},
            },
        )
        try:
            stock = await claim(kube, pool, honest)
            await create_unit(kube, unit_body(honest, stock=stock))
            await wait_unit_phase(kube, honest, "Ready")
            await wait_pool_available(kube, pool, 1)

            async def is_gone() -> bool:
                return await find(kube, SERVICES.item(f"unit-{lost}", INSTANCES)) is None

            await eventually(is_gone)
            await wait_reported(kube, STOCK, spoilt[0], names.ANNOTATION_CLAIMED_BY)
        finally:
            await delete_unit(kube, honest)


async def test_an_operation_whose_request_is_nested_too_deeply_does_not_stop_the_others(
    kube: KubeClient, cluster: RunningCluster
) -> None:
    def build(name: str) -> Json:
        target = OperationTarget(kind="GPUUnit", namespace=INSTANCES, name=name)
        spec = OperationSpec(
            operation_id=name, kind=OperationKind.CREATE_UNIT, request_hash="a" * 64, request={}, target=target
        )
        return build_operation(f"op-{name}", INSTANCES, spec)

    deep, honest = f"deep-{secrets.token_hex(3)}", f"honest-{secrets.token_hex(3)}"
    nested = '{"a":' * 5_000 + "1" + "}" * 5_000
    body = json.dumps(build(deep)).replace('"request": {}', f'"request": {nested}')
    assert nested in body
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=admin_tls(cluster.directory))) as session:
        url = f"{kube.server}{OPERATIONS.collection(INSTANCES)}"
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            assert answer.status == 201, await answer.text()
    await kube.create(OPERATIONS.collection(INSTANCES), build(honest))

    async def are_removed() -> bool | NotYet:
        # Neither has claimed stock: after the takeover both are removed, as nothing was accepted.
        left = [each for each in (deep, honest) if await find(kube, OPERATIONS.item(f"op-{each}", INSTANCES))]
        return not left or NotYet(left)

    await eventually(are_removed)
    assert (await kube.get(GPU_UNITS.collection(INSTANCES)))["kind"] == "GPUUnitList"
