"""The API as its callers meet it: processes of this tree on the session's cluster, and clients with keys."""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gpu_platform.devcluster.record import ClusterRecord
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import (
    KEYS_SECRET,
    PLATFORM_ROLES,
    KeyRecord,
    Role,
    build_key,
    draw_key_parts,
    hash_secret,
)
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import SECRETS
from tests.support.daemons import Daemon, running_daemon
from tests.support.ports import free_port
from tests.support.waiting import Deadline, eventually

UNITS = "/api/v1/gpu-units"


BUSY_SECONDS = 60.0
BUSY = ("service_unavailable", "operation_in_progress")
"""What the platform says while it cannot, and what it will say no longer in a moment."""


@dataclass(frozen=True)
class Listeners:
    """Those of an API process beside its public port."""

    probe_url: str
    metrics_url: str


_listeners: dict[int, Listeners] = {}
"""By public port: what a test has at hand is a client of that."""


def know_listeners(record: ClusterRecord) -> None:
    _listeners[record.ports["api"]] = Listeners(record.probe_url, record.metrics_url)


class _Patient(httpx.AsyncHTTPTransport):
    """Asks again, as every caller should, where a 503 says when. A machine that is busy with tests needs that."""

    def __init__(self, limits: httpx.Limits, seconds: float) -> None:
        super().__init__(limits=limits, trust_env=False)
        self._seconds = seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        deadline = Deadline(self._seconds)
        while True:
            answer = await super().handle_async_request(request)
            if deadline.is_over or not await _is_busy(answer):
                return answer
            await answer.aclose()
            await asyncio.sleep(int(answer.headers["Retry-After"]))


async def _is_busy(answer: httpx.Response) -> bool:
    """A unit that is called through the platform may have a 503 of its own."""
    if answer.status_code != 503 or answer.headers.get("Content-Type") != "application/json":
        return False
    error = json.loads(await answer.aread()).get("error")
    return isinstance(error, dict) and error.get("code") in BUSY


def open_api(url: str, key: str | None, *, patience: float = BUSY_SECONDS) -> httpx.AsyncClient:
    """`patience`: for how long a platform that is busy is asked again; 0 where the refusal is what is looked for."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    transport = _Patient(limits, patience)
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=30, transport=transport, trust_env=False)


@asynccontextmanager
async def api_process(
    kubeconfig: Path,
    log: Path,
    settings: Mapping[str, str] | None = None,
    fault: str | None = None,
    module: str = "platform_api",
) -> AsyncIterator[tuple[Daemon, str]]:
    """An API process of its own, and its URL; it need not be ready."""
    port, probes, metrics = free_port(), free_port(), free_port()
    _listeners[port] = Listeners(f"http://127.0.0.1:{probes}", f"http://127.0.0.1:{metrics}")
    environment = {
        "GPU_PLATFORM_API_HTTP_ADDR": f"127.0.0.1:{port}",
        "GPU_PLATFORM_API_PROBE_ADDRESS": f"127.0.0.1:{probes}",
        "GPU_PLATFORM_API_METRICS_ADDRESS": f"127.0.0.1:{metrics}",
        "GPU_PLATFORM_API_KUBECONFIG": str(kubeconfig),
        # As everywhere on an embedded cluster: addresses in the status of pods are invented.
        "GPU_PLATFORM_API_DEVELOPMENT_ADDRESSES": "true",
        **(settings or {}),
        **({"GPU_PLATFORM_FAULT": fault} if fault else {}),
    }
    async with running_daemon(module, log, environment) as daemon:
        yield daemon, f"http://127.0.0.1:{port}"


def listeners_of(api: httpx.AsyncClient) -> Listeners:
    assert api.base_url.port is not None
    return _listeners[api.base_url.port]


async def probe(api: httpx.AsyncClient, path: str) -> httpx.Response:
    """Asks the process behind this client on its listener for probes."""
    return await _ask(f"{listeners_of(api).probe_url}{path}")


async def scrape(api: httpx.AsyncClient) -> str:
    """Returns the metrics of the process behind this client."""
    answer = await _ask(f"{listeners_of(api).metrics_url}/metrics")
    assert answer.status_code == 200
    return answer.text


async def _ask(url: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        return await client.get(url)


async def wait_ready(api: httpx.AsyncClient, within: float = 180) -> None:
    async def is_ready() -> bool:
        try:
            return (await probe(api, "/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    await eventually(is_ready, within=within)


async def add_key(kube: KubeClient, tenant: str, *roles: Role) -> str:
    """A new key in the platform's Secret; every process knows it within seconds. With a platform role it is a platform
    key."""
    return await add_key_record(kube, tenant, roles, is_platform=not PLATFORM_ROLES.isdisjoint(roles))


async def add_key_record(kube: KubeClient, tenant: str, roles: tuple[Role, ...], *, is_platform: bool | None) -> str:
    """`is_platform` None: as an earlier release wrote the record."""
    key_id, secret = draw_key_parts(secrets.token_bytes)
    record = KeyRecord(sha256=hash_secret(secret), tenant=tenant, roles=roles, platform=is_platform)
    encoded = base64.b64encode(json.dumps(record.to_json()).encode()).decode()
    await kube.patch(SECRETS.item(KEYS_SECRET, names.SYSTEM_NAMESPACE), {"data": {key_id: encoded}})
    return build_key(key_id, secret)


async def remove_key(kube: KubeClient, key: str) -> None:
    key_id = key.split("_")[1]
    await kube.patch(SECRETS.item(KEYS_SECRET, names.SYSTEM_NAMESPACE), {"data": {key_id: None}})


def unit_request(name: str, **fields: Any) -> Json:
    return {"operationID": f"op-{name}", "name": name, "specName": "g1.1", "image": "example/train", **fields}


def code_of(answer: httpx.Response) -> str:
    code: str = answer.json()["error"]["code"]
    return code
