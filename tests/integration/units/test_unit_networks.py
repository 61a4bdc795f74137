"""Who may call a unit, and whom a unit may call: its NetworkPolicy on the real API server."""

from collections.abc import AsyncIterator

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import ENDPOINT_SLICES, GPU_UNITS, NETWORK_POLICIES, PODS
from tests.support.units_and_stock import INSTANCES, create_unit, delete_unit, unit_body, wait_unit_phase
from tests.support.waiting import NotYet, eventually

HTTP = {"ports": [{"name": "http", "port": 8000}]}


@pytest.fixture
async def unit(kube: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A name for the test's unit; the unit is gone afterwards."""
    name = request.node.name.removeprefix("test_").replace("_", "-").split("[")[0][:36].strip("-")
    yield name
    await delete_unit(kube, name)


async def pods_of(kube: KubeClient, unit: str, namespace: str = INSTANCES) -> list[Json]:
    selector = {"labelSelector": f"{names.LABEL_UNIT}={unit}"}
    return list((await kube.get(PODS.collection(namespace), selector))["items"])


async def test_the_api_servers_addresses_are_closed_to_units_as_they_come_and_go(kube: KubeClient, unit: str) -> None:
    await create_unit(kube, unit_body(unit))
    await wait_unit_phase(kube, unit, "Ready")
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes-test", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["203.0.113.7"]}],
        "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
    }

    async def excepted() -> list[str]:
        policy = await kube.get(NETWORK_POLICIES.item(names.child_name(unit), INSTANCES))
        blocks = [peer["ipBlock"] for rule in policy["spec"]["egress"] for peer in rule["to"] if "ipBlock" in peer]
        return [cidr for block in blocks for cidr in block.get("except", ())]

    async def is_closed() -> bool | NotYet:
        return "203.0.113.7/32" in await excepted() or NotYet(await excepted())

    async def is_open() -> bool | NotYet:
        return "203.0.113.7/32" not in await excepted() or NotYet(await excepted())

    await kube.create(ENDPOINT_SLICES.collection("default"), body)
    try:
        await eventually(is_closed)
    finally:
        await kube.delete(ENDPOINT_SLICES.item("kubernetes-test", "default"))
    await eventually(is_open)


async def test_tenant_access_changes_the_network_and_restarts_nothing(kube: KubeClient, unit: str) -> None:
    await create_unit(kube, unit_body(unit, template=HTTP))
    await wait_unit_phase(kube, unit, "Ready")
    [before] = await pods_of(kube, unit)
    await kube.patch(GPU_UNITS.item(unit, INSTANCES), {"spec": {"access": {"tenant": True}}})

    async def is_admitted() -> bool | NotYet:
        policy = await kube.get(NETWORK_POLICIES.item(names.child_name(unit), INSTANCES))
        callers = [peer for rule in policy["spec"]["ingress"] for peer in rule["from"]]
        return {"podSelector": {"matchLabels": {names.LABEL_NAME: names.NAME_VALUE}}} in callers or NotYet(callers)

    await eventually(is_admitted)
    [after] = await pods_of(kube, unit)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
