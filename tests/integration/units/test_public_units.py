"""Public units on the real API server. Nobody in the embedded cluster serves routes, so that the tests say what an
ingress controller or a gateway would say in a route's status."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, KubeError, PatchType, ResourcePath
from gpu_platform.kube.paths import GPU_UNITS, HTTP_ROUTES, INGRESSES, NETWORK_POLICIES
from tests.support.admission import WORDS, refused_ingresses
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.daemons import running_daemon
from tests.support.units_and_stock import (
    INSTANCES,
    create_unit,
    delete_unit,
    find,
    get_unit,
    unit_body,
    wait_unit_phase,
)
from tests.support.waiting import NotYet, eventually

CUSTOM_RESOURCES = ResourcePath("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
HTTP = {"ports": [{"name": "http", "port": 8000}, {"name": "admin", "port": 9000}]}
PUBLIC = {"primaryPort": "http", "scheme": "http", "public": True}
INGRESS = {"ROUTE_KIND": "Ingress", "ROUTE_CLASS": "nginx", "ROUTE_ANNOTATIONS": "example.com/timeout=1h"}
HTTP_ROUTE = {"ROUTE_KIND": "HTTPRoute", "ROUTE_GATEWAY": "gateways/public"}
TAKEN_UP = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}


@pytest.fixture
async def unit(kube: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:36].strip("-")
    yield name
    await delete_unit(kube, name)


@asynccontextmanager
async def routing(cluster: RunningCluster, directory: Path, **route: str) -> AsyncIterator[None]:
    """A reconciler that gives units public addresses, in the place of the cluster's own, which does not."""
    settings = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "CONTROLLERS": "units",
        "LEADER_ELECT": "false",
        "PROBE_ADDRESS": "127.0.0.1:0",
        "METRICS_ADDRESS": "127.0.0.1:0",
        "ROUTE_DOMAIN": "units.example.com",
        "ROUTE_FROM_NAMESPACE": "ingress",
        **route,
    }
    environment = {f"GPU_PLATFORM_RECONCILER_{key}": value for key, value in settings.items()}
    with frozen(cluster, "reconciler"):
        async with running_daemon("reconciler", directory / "reconciler.log", environment) as daemon:
            await daemon.says("reconciler.started")
            yield


@pytest.fixture(scope="module")
async def gateway_api(kube: KubeClient) -> AsyncIterator[None]:
    """As much of Gateway API's HTTPRoute as concerns us, with its defaults."""
    backend = _object(
        name={"type": "string"},
        port={"type": "integer"},
        kind={"type": "string", "default": "Service"},
        weight={"type": "integer", "default": 1},
    )
    path = _object(type={"type": "string"}, value={"type": "string"})
    matches = {
        "type": "array",
        "items": _object(path=path),
        "default": [{"path": {"type": "PathPrefix", "value": "/"}}],
    }
    parent = _object(
        namespace={"type": "string"},
        name={"type": "string"},
        group={"type": "string", "default": "gateway.networking.k8s.io"},
        kind={"type": "string", "default": "Gateway"},
    )
    spec = _object(
        parentRefs={"type": "array", "items": parent},
        hostnames={"type": "array", "items": {"type": "string"}},
        rules={"type": "array", "items": _object(matches=matches, backendRefs={"type": "array", "items": backend})},
    )
    schema = _object(spec=spec, status={"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    name = "httproutes.gateway.networking.k8s.io"
    definition = {
        "apiVersion": CUSTOM_RESOURCES.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api"},
        },
        "spec": {
            "group": "gateway.networking.k8s.io",
            "names": {"kind": "HTTPRoute", "plural": "httproutes"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    await kube.create(CUSTOM_RESOURCES.collection(), definition)

    async def is_served() -> bool:
        try:
            return bool(await kube.get(HTTP_ROUTES.collection()))
        except KubeError:
            return False

    await eventually(is_served)
    yield
    await kube.delete(CUSTOM_RESOURCES.item(name))


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


async def published(kube: KubeClient, unit: str, url: str | None, words: str) -> Json:
    """The unit once its status says this about its public address."""

    async def says_so() -> Json | None:
        item = await get_unit(kube, unit)
        status = item.get("status", {})
        messages = [each["message"] for each in status.get("conditions", ()) if each["type"] == "Published"]
        is_so = status.get("publicURL") == url and any(words in message for message in messages)
        return item if is_so else None

    return await eventually(says_so)


async def say_status(kube: KubeClient, path: ResourcePath, unit: str, status: Json) -> None:
    place = path.item(names.child_name(unit), INSTANCES, "status")
    await kube.patch(place, {"status": status}, PatchType.MERGE)


async def test_a_public_unit_gets_an_ingress_and_shows_its_address_once_it_is_taken_up(
    kube: KubeClient, cluster: RunningCluster, api: httpx.AsyncClient, unit: str, tmp_path: Path
) -> None:
    child = names.child_name(unit)
    host = names.public_host(unit, INSTANCES, "units.example.com")
    async with routing(cluster, tmp_path, **INGRESS):
        # On the host node: a unit of a simulated one has no address.
        template = {**HTTP, "command": ["sleep", "1000"]}
        await create_unit(kube, unit_body(unit, specName="host.1", template=template, access=PUBLIC))
        await wait_unit_phase(kube, unit, "Ready")
        await published(kube, unit, None, "no ingress controller")
        shown = (await api.get(f"/api/v1/gpu-units/{unit}")).json()["data"]
        assert "publicURL" not in shown
        assert shown["publicMessage"] == "no ingress controller has taken up its Ingress yet"

        ingress = await kube.get(INGRESSES.item(child, INSTANCES))
        assert [rule["host"] for rule in ingress["spec"]["rules"]] == [host]
        assert ingress["metadata"]["annotations"]["example.com/timeout"] == "1h"
        policy = await kube.get(NETWORK_POLICIES.item(child, INSTANCES))
        [proxy, bringers] = policy["spec"]["ingress"]
        assert bringers["ports"] == [{"protocol": "TCP", "port": 8000}]

        await say_status(kube, INGRESSES, unit, TAKEN_UP)
        await published(kube, unit, f"https://{host}/", "everybody can call it")

        async def shows_it() -> bool | NotYet:
            """The API shows addresses of pods that it has seen."""
            shown = (await api.get(f"/api/v1/gpu-units/{unit}")).json()["data"]
            return shown.get("publicURL") == f"https://{host}/" or NotYet(shown)

        await eventually(shows_it)
        address = (await api.get(f"/api/v1/gpu-units/{unit}/address")).json()["data"]
        assert address["publicURL"] == f"https://{host}/"

        # Whoever points the host elsewhere is corrected.
        elsewhere = {"spec": {"rules": [{"host": "elsewhere.example.com"}]}}
        await kube.patch(INGRESSES.item(child, INSTANCES), elsewhere, PatchType.MERGE)

        async def is_put_back() -> bool:
            return bool((await kube.get(INGRESSES.item(child, INSTANCES)))["spec"] == ingress["spec"])

        await eventually(is_put_back)

        await kube.patch(GPU_UNITS.item(unit, INSTANCES), {"spec": {"access": {"public": None}}}, PatchType.MERGE)

        async def is_private() -> bool:
            item = await get_unit(kube, unit)
            policy = await kube.get(NETWORK_POLICIES.item(child, INSTANCES))
            return (
                await find(kube, INGRESSES.item(child, INSTANCES)) is None
                and "publicURL" not in item["status"]
                and policy["spec"]["ingress"] == [proxy]
            )

        await eventually(is_private)


@pytest.mark.usefixtures("gateway_api")
async def test_a_public_unit_gets_an_http_route_and_waits_for_the_gateways_word(
    kube: KubeClient, cluster: RunningCluster, unit: str, tmp_path: Path
) -> None:
    host = names.public_host(unit, INSTANCES, "units.example.com")
    async with routing(cluster, tmp_path, **HTTP_ROUTE):
        await create_unit(kube, unit_body(unit, template=HTTP, access=PUBLIC))
        await published(kube, unit, None, "no gateway")
        route = await kube.get(HTTP_ROUTES.item(names.child_name(unit), INSTANCES))
        assert route["spec"]["hostnames"] == [host]
        generation = route["metadata"]["generation"]

        await say_status(kube, HTTP_ROUTES, unit, gateway_says(generation, Accepted=("False", "NotAllowedByListeners")))
        await published(kube, unit, None, "the gateway says NotAllowedByListeners")

        await say_status(kube, HTTP_ROUTES, unit, gateway_says(generation))
        await published(kube, unit, f"https://{host}/", "everybody can call it")
        # The defaults that the API server adds are no drift.
        again = await kube.get(HTTP_ROUTES.item(names.child_name(unit), INSTANCES))
        assert again["metadata"]["generation"] == generation


def gateway_says(generation: int, **conditions: tuple[str, str]) -> Json:
    said = {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("True", "ResolvedRefs"), **conditions}
    return {
        "parents": [
            {
                "conditions": [
                    {"type": kind, "status": status, "reason": reason, "message": "", "observedGeneration": generation}
                    for kind, (status, reason) in said.items()
                ]
            }
        ]
    }


async def test_where_no_routes_are_set_up_a_public_unit_runs_and_says_whom_to_ask(kube: KubeClient, unit: str) -> None:
    await create_unit(kube, unit_body(unit, template=HTTP, access=PUBLIC))

    await wait_unit_phase(kube, unit, "Ready")
    await published(kube, unit, None, "routeKind")


async def test_routes_that_are_turned_off_go_and_the_unit_runs_on(
    kube: KubeClient, cluster: RunningCluster, unit: str, tmp_path: Path
) -> None:
    async with routing(cluster, tmp_path, **INGRESS):
        await create_unit(kube, unit_body(unit, template=HTTP, access=PUBLIC))
        await wait_unit_phase(kube, unit, "Ready")
        await say_status(kube, INGRESSES, unit, TAKEN_UP)
        await published(kube, unit, f"https://{names.public_host(unit, INSTANCES, 'units.example.com')}/", "everybody")

    # The cluster's own reconciler goes on, and that one knows no routes.
    child = names.child_name(unit)

    async def is_gone() -> bool:
        return await find(kube, INGRESSES.item(child, INSTANCES)) is None

    await eventually(is_gone)
    await published(kube, unit, None, "routeKind")
    policy = await kube.get(NETWORK_POLICIES.item(child, INSTANCES))
    assert len(policy["spec"]["ingress"]) == 1
    assert (await get_unit(kube, unit))["status"]["phase"] == "Ready"


async def test_a_route_that_is_refused_keeps_no_unit_from_running(
    kube: KubeClient, cluster: RunningCluster, unit: str, tmp_path: Path
) -> None:
    async with routing(cluster, tmp_path, **INGRESS):
        async with refused_ingresses(kube):
            await create_unit(kube, unit_body(unit, template=HTTP, access=PUBLIC))
            await wait_unit_phase(kube, unit, "Ready")
            await published(kube, unit, None, WORDS)
        await published(kube, unit, None, "no ingress controller")


async def test_an_ingress_in_the_name_of_a_private_unit_is_taken_away(kube: KubeClient, unit: str) -> None:
    await create_unit(kube, unit_body(unit, template=HTTP))
    await wait_unit_phase(kube, unit, "Ready")
    child = names.child_name(unit)
    backend = {"service": {"name": child, "port": {"number": 8000}}}
    body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": child, "labels": names.unit_labels(unit)},
        "spec": {"defaultBackend": backend},
    }
    await kube.create(INGRESSES.collection(INSTANCES), body)

    async def is_gone() -> bool:
        return await find(kube, INGRESSES.item(child, INSTANCES)) is None

    await eventually(is_gone)
