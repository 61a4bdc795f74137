"""What a tenant does with functions over REST, as the tests do it: declare, take away."""

from typing import Any

import httpx

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from tests.support.units_api import SPEC, delete_operations
from tests.support.waiting import eventually

FUNCTIONS = "/api/v1/serverless/functions"


def build_function_request(name: str, **fields: Any) -> Json:
    """A function without workers, unless the fields say otherwise."""
    return {"operationID": f"op-{name}", "name": name, "specName": SPEC, "image": "example/words", **fields}


async def post_function(api: httpx.AsyncClient, name: str, **fields: Any) -> Json:
    answer = await api.post(FUNCTIONS, json=build_function_request(name, **fields))
    assert answer.status_code == 201, answer.text
    view: Json = answer.json()["data"]
    return view


async def remove_function(api: httpx.AsyncClient, kube: KubeClient, name: str) -> None:
    """Also its record, so that the next test may use the same operationID."""
    await api.delete(f"{FUNCTIONS}/{name}")

    async def is_gone() -> bool:
        return (await api.get(f"{FUNCTIONS}/{name}")).status_code == 404

    await eventually(is_gone)
    await delete_operations(kube, name)
