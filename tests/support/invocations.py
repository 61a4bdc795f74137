"""Calls of functions as their callers make them: an API process of this tree, a nats-server of its own, and tenants."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_FUNCTIONS
from gpu_platform.nats.connection import JetStream, open_queue
from gpu_platform.nats.credentials import Keyring
from gpu_platform.nats.durability import PROBES
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.listing import EVERYBODY, Listing
from gpu_platform.nats.permissions import QueueUser, inbox_prefix_of
from gpu_platform.nats.streams import ensure_consumer, ensure_streams
from tests.support.api import api_process, open_api, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.function_workers import WorkerPlace
from tests.support.nats_server import QueueServer, queue_server
from tests.support.tenants import Tenant, tenant
from tests.support.waiting import NotYet, eventually

SERVERLESS = "/api/v1/serverless"
INVOCATIONS = f"{SERVERLESS}/invocations"
DEAD_LETTERS = f"{SERVERLESS}/dead-letters"
ACK_SECONDS = 3
OVER = ("succeeded", "failed", "expired", "cancelled", "dead_lettered")
ROLES = (Role.EDITOR,)


@dataclass(frozen=True)
class Ground:
    root: Path
    kube: KubeClient
    server: QueueServer
    js: JetStream
    url: str
    acme: Tenant

    @property
    def api_settings(self) -> dict[str, str]:
        """Of another API process on the same nats-server."""
        return build_api_settings(self.server)

    async def function(self, name: str, owner: Tenant | None = None, **spec: Any) -> str:
        """With the consumer that the reconciler would make."""
        owner = owner or self.acme
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "GPUFunction",
            "metadata": {"name": name, "namespace": owner.namespace},
            "spec": {"specName": "g1.1", "image": "example/words", **spec},
        }
        await self.kube.create(GPU_FUNCTIONS.collection(owner.namespace), body)
        await ensure_consumer(self.js, owner.name, name, timedelta(seconds=ACK_SECONDS))
        return name

    def workers(self, function: str) -> WorkerPlace:
        credentials = self.server.sidecar_access(self.acme.name, function).credentials
        return WorkerPlace(
            self.root, self.server.url, self.acme.name, function, ACK_SECONDS, nats_credentials=credentials
        )

    async def invoke(self, function: str, **fields: Any) -> httpx.Response:
        body = {"serverlessRequestID": function, "payload": {"text": "a b c"}, **fields}
        return await self.acme.api.post(INVOCATIONS, json=body, timeout=60)

    async def accept(self, function: str, **fields: Any) -> str:
        answer = await self.invoke(function, **fields)
        assert answer.status_code == 202, answer.text
        invocation_id: str = answer.json()["data"]["invocationID"]
        return invocation_id

    async def look(self, invocation_id: str) -> Json:
        answer = await self.acme.api.get(f"{INVOCATIONS}/{invocation_id}")
        assert answer.status_code == 200, answer.text
        view: Json = answer.json()["data"]
        return view

    async def comes_to(self, invocation_id: str, *states: str) -> Json:
        async def is_there() -> Json | NotYet:
            answer = await self.acme.api.get(f"{INVOCATIONS}/{invocation_id}")
            view: Json = answer.json().get("data", {})
            return view if view.get("state") in states else NotYet(view)

        return await eventually(is_there)

    async def ends(self, invocation_id: str) -> Json:
        return await self.comes_to(invocation_id, *OVER)

    async def count_stored(self) -> tuple[int, ...]:
        """Messages of each stream, without those with which the processes look whether it stores."""
        counts = []
        for stream, probe in PROBES.items():
            state = (await self.js.stream_info(stream, subjects_filter=">")).state
            counts.append(sum(count for subject, count in (state.subjects or {}).items() if subject != probe))
        return tuple(counts)

    async def is_connected(self) -> bool:
        answer = await self.acme.api.get(INVOCATIONS)
        return answer.status_code == 200

    async def restart_server(self) -> None:
        self.server.kill()
        await self.server.start()
        await eventually(self.is_connected)
        await eventually(self._is_back)

    async def _is_back(self) -> bool:
        try:
            await Listing(self.js).read_page(EVERYBODY, 0, limit=1)
        except QueueUnavailableError:
            return False
        return True


@asynccontextmanager
async def open_ground(
    kube: KubeClient, cluster: RunningCluster, root: Path, settings: dict[str, str] | None = None
) -> AsyncIterator[Ground]:
    user = QueueUser.FUNCTIONS
    async with (
        queue_server(root, keyring=Keyring.new(secrets.token_bytes)) as server,
        open_queue(server.access_of(user), "test", inbox_prefix=inbox_prefix_of(user)) as js,
    ):
        await ensure_streams(js)
        environment = {**build_api_settings(server), **(settings or {})}
        log = root / f"api-{secrets.token_hex(4)}.log"
        async with api_process(cluster.api_kubeconfig, log, environment) as (_, url), open_api(url, None) as api:
            await wait_ready(api)
            async with tenant(kube, url, *ROLES) as acme:
                ground = Ground(root, kube, server, js, url, acme)
                await eventually(ground.is_connected)
                yield ground


def build_api_settings(server: QueueServer) -> dict[str, str]:
    credentials = server.access_of(QueueUser.API).credentials
    return {"GPU_PLATFORM_API_NATS_URL": server.url, "GPU_PLATFORM_API_NATS_CREDENTIALS": str(credentials)}
