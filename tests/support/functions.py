"""Functions: made with `kubectl` or over REST, run by the host node, and called over the queue."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from gpu_platform.clock import now_utc
from gpu_platform.devcluster.credentials import credentials_file
from gpu_platform.domain import names
from gpu_platform.domain.invocations import Invocation, InvocationRequest, accept
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, NotFoundError
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_UNITS, PODS
from gpu_platform.nats.connection import JetStream, QueueAccess, open_queue
from gpu_platform.nats.permissions import QueueUser
from gpu_platform.nats.records import Records
from gpu_platform.nats.streams import ensure_streams
from tests.architecture.repository import ROOT
from tests.support.clusters import RunningCluster
from tests.support.units_and_stock import INSTANCES, find, ready_condition
from tests.support.units_api import SPEC as UNITS_SPEC
from tests.support.units_api import remove_with_record
from tests.support.waiting import eventually

SPEC = "host.1"
COMMAND = [sys.executable, "-m", "serverless.framework", f"{ROOT}/examples/functions/words.py:count"]


def function_body(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUFunction",
        "metadata": {"name": name, "namespace": INSTANCES},
        "spec": {
            "specName": SPEC,
            "image": "example/words",
            "template": {"command": COMMAND},
            "maxWorkers": 5,
            "ackWaitSeconds": 5,
            **spec,
        },
    }


async def wait_function_reason(kube: KubeClient, name: str, reason: str, **status: Any) -> Json:
    """The function, once its Ready condition has this reason and its status these fields, for its newest spec."""

    async def said() -> Json | None:
        function = await find(kube, GPU_FUNCTIONS.item(name, INSTANCES))
        if function is None or "conditions" not in function.get("status", {}):
            return None
        known = function["status"]
        is_current = known["observedGeneration"] == function["metadata"]["generation"]
        fits = ready_condition(function)["reason"] == reason and status.items() <= known.items()
        return function if is_current and fits else None

    try:
        return await eventually(said)
    except AssertionError:
        function = await find(kube, GPU_FUNCTIONS.item(name, INSTANCES))
        units = [(unit["metadata"]["name"], unit.get("status")) for unit in await workers_of(kube, name)]
        raise AssertionError(f"it is {(function or {}).get('status')}, its workers are {units}") from None


async def change_function(kube: KubeClient, name: str, **spec: Any) -> None:
    await kube.patch(GPU_FUNCTIONS.item(name, INSTANCES), {"spec": spec})


async def workers_of(kube: KubeClient, function: str) -> list[Json]:
    answer = await kube.get(GPU_UNITS.collection(INSTANCES), {"labelSelector": f"{names.LABEL_FUNCTION}={function}"})
    return sorted(answer["items"], key=lambda unit: str(unit["metadata"]["name"]))


async def pod_of(kube: KubeClient, unit: str) -> Json:
    answer = await kube.get(PODS.collection(INSTANCES), {"labelSelector": f"{names.LABEL_UNIT}={unit}"})
    [pod] = [pod for pod in answer["items"] if "deletionTimestamp" not in pod["metadata"]]
    return dict(pod)


async def delete_function(kube: KubeClient, name: str) -> None:
    """With its workers, as the API does it."""
    try:
        await kube.delete(GPU_FUNCTIONS.item(name, INSTANCES), {"propagationPolicy": "Foreground"})
    except NotFoundError:
        return

    async def is_gone() -> bool:
        return await find(kube, GPU_FUNCTIONS.item(name, INSTANCES)) is None

    await eventually(is_gone)


@asynccontextmanager
async def function_object(kube: KubeClient, name: str, **spec: Any) -> AsyncIterator[Json]:
    try:
        yield await kube.create(GPU_FUNCTIONS.collection(INSTANCES), function_body(name, **spec))
    finally:
        await delete_function(kube, name)


@dataclass(frozen=True)
class Calls:
    """The queue, as the API sees it."""

    js: JetStream
    records: Records

    async def send(self, function: str, call_id: str, **payload: Any) -> Invocation:
        request = InvocationRequest(function=function, id=call_id, payload={"text": "a b c", **payload})
        accepted = await self.records.accept(accept("default", request, now_utc()))
        await self.records.enqueue(accepted.seen.call)
        return accepted.seen.call

    async def find(self, call_id: str) -> Invocation:
        seen = await self.records.find("default", call_id)
        assert seen is not None
        return seen.call

    async def ends(self, call_id: str, within: float = 180.0) -> Invocation:
        async def over() -> Invocation | None:
            call = await self.find(call_id)
            return call if call.is_over else None

        return await eventually(over, within)

    async def begins(self, call_id: str) -> Invocation:
        async def running() -> Invocation | None:
            call = await self.find(call_id)
            return call if call.worker is not None else None

        return await eventually(running)


@asynccontextmanager
async def open_calls(cluster: RunningCluster) -> AsyncIterator[Calls]:
    access = QueueAccess(cluster.record.nats_url, credentials_file(cluster.directory, QueueUser.PLATFORM))
    async with open_queue(access, "tests") as js:
        # In a new cluster the API may not have made them yet.
        await ensure_streams(js)
        yield Calls(js, Records(js, timedelta(hours=1)))


FUNCTIONS = "/api/v1/serverless/functions"


def build_function_request(name: str, **fields: Any) -> Json:
    """A function without workers, unless the fields say otherwise."""
    return {"operationID": f"op-{name}", "name": name, "specName": UNITS_SPEC, "image": "example/words", **fields}


async def post_function(api: httpx.AsyncClient, name: str, **fields: Any) -> Json:
    answer = await api.post(FUNCTIONS, json=build_function_request(name, **fields))
    assert answer.status_code == 201, answer.text
    view: Json = answer.json()["data"]
    return view


async def remove_function(api: httpx.AsyncClient, kube: KubeClient, name: str) -> None:
    await remove_with_record(api, kube, FUNCTIONS, name)
