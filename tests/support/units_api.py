"""What a tenant does over REST, as the tests do it: rent, wait, give back."""

from typing import Any

import httpx

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import OPERATIONS
from tests.support.api import UNITS, code_of, unit_request
from tests.support.units_and_stock import INSTANCES
from tests.support.waiting import NotYet, eventually

SPEC = "rest.1"


def spec_body(name: str, **spec: Any) -> Json:
    """An entry of the catalogue on simulated nodes, with one GPU unless it says otherwise."""
    place = {"runtime.lokiwager.io/node": "simulated"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUSpec",
        "metadata": {"name": name},
        "spec": {"cpu": "1", "memory": "2Gi", "gpu": 1, "nodeSelector": place, **spec},
    }


async def post_ready_unit(api: httpx.AsyncClient, name: str, **fields: Any) -> Json:
    await post_unit(api, name, **fields)
    return await wait_unit_view(api, name, "Ready")


async def post_unit(api: httpx.AsyncClient, name: str, **fields: Any) -> None:
    """Once there is stock: what others took is made again, in its own time."""

    async def is_accepted() -> bool:
        answer = await api.post(UNITS, json=rest_unit(name, **fields))
        assert answer.status_code in (200, 201, 409), answer.text
        assert answer.status_code != 409 or code_of(answer) == "insufficient_capacity", answer.text
        return answer.status_code != 409

    await eventually(is_accepted, every=0.2)


def rest_unit(name: str, **fields: Any) -> Json:
    return unit_request(name, **{"specName": SPEC, **fields})


async def wait_unit_view(api: httpx.AsyncClient, name: str, phase: str) -> Json:
    """Once what was asked for last is what is shown."""

    async def is_there() -> Json | NotYet:
        view: Json = (await api.get(f"{UNITS}/{name}")).json()["data"]
        is_current = view.get("observedGeneration") == view["generation"]
        return view if is_current and view["phase"] == phase else NotYet(view)

    return await eventually(is_there)


async def remove_unit(api: httpx.AsyncClient, kube: KubeClient, name: str) -> None:
    await remove_with_record(api, kube, UNITS, name)


async def remove_with_record(api: httpx.AsyncClient, kube: KubeClient, collection: str, name: str) -> None:
    """Deletes an object and its operations, so that the next test may use the same operationID."""
    await api.delete(f"{collection}/{name}")

    async def is_gone() -> bool:
        return (await api.get(f"{collection}/{name}")).status_code == 404

    await eventually(is_gone)
    await delete_operations(kube, name)


async def delete_operations(kube: KubeClient, name: str, namespace: str = INSTANCES) -> None:
    """Every record of this name's operations."""
    for operation in (await kube.get(OPERATIONS.collection(namespace)))["items"]:
        if operation["spec"]["target"]["name"] == name:
            await kube.delete(OPERATIONS.item(operation["metadata"]["name"], namespace))
