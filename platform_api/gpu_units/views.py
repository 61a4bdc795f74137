"""Units as their tenants see them: one, its GPUs' figures, and all of them as they change (server-sent events).

An event's id is a resourceVersion: a caller that was cut off sends the last one it saw (`Last-Event-ID`) and misses
nothing. When that is too old, it is told to `resync`, and gets the full list again.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

from gpu_platform.api_models.units import GpuView, ServerlessStatus, SshView, UnitView
from gpu_platform.domain import names
from gpu_platform.domain.conditions import find_condition
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, is_being_deleted
from gpu_platform.domain.ssh import Ssh
from gpu_platform.domain.tenants import tenant_of
from gpu_platform.domain.units import GPUUnitSpec, GPUUnitStatus, Phase, Serverless
from gpu_platform.domain.value import fields_of
from gpu_platform.kube import GoneError, KubeError
from gpu_platform.kube.informer import parse_event
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.kube.requests import list_pages
from gpu_platform.nats.subjects import consumer_name
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.gpu_units.proxy_target import find_callable_port, plan_target
from platform_api.health.gpu_readings import Reading
from platform_api.http.errors import ApiError, object_not_found
from platform_api.http.streams import build_event
from platform_api.kube_health import BoundedClient
from platform_api.objects.reads import view_common
from platform_api.proxy.pod_address import Simulated, Target, plan_address

ROUND_SECONDS = 15
"""How long one watch lasts. Between two of them a comment keeps proxies from closing a silent stream."""

RETRY_SECONDS = 1.0
PAGE = 500
REFUSALS = (400, 401, 403, 404)

TOO_NEW = 504
"""Status for a resourceVersion that the API server has not reached yet, as after a restored backup."""

NAMES = {"ADDED": "added", "MODIFIED": "modified", "DELETED": "deleted"}


class UnitTargets:
    def __init__(self, cluster: Cluster, *, development_addresses: bool) -> None:
        self._cluster = cluster
        self._development_addresses = development_addresses

    async def find(self, caller: Caller, name: str, port: str) -> Target:
        unit = await self._cluster.find(GPU_UNITS, caller.namespace, name)
        if unit is None:
            raise object_not_found("unit", name)
        self._cluster.require_known_pods()
        pods = self._cluster.pods_of(unit)
        found = plan_target(unit, pods, port, development_addresses=self._development_addresses)
        if isinstance(found, ApiError):
            raise found
        return found

    def find_address(self, unit: Json) -> str | Simulated | None:
        """Of the pod that answers the unit's calls."""
        return plan_address(self._cluster.pods_of(unit), development_addresses=self._development_addresses)

    def find_proxy_path(self, unit: Json) -> str | None:
        """Where this API passes calls on to the unit's first port; None for a unit that is not called by HTTP."""
        port = find_callable_port(unit)
        return f"/api/v1/gpu-units/{unit['metadata']['name']}/proxy/{port}/" if port else None

    def show(self, unit: Json, root: str) -> UnitView:
        """A unit's URLs are shown while a pod of it is ready. Its own status may be some seconds behind on that, or for
        ever, where nobody is left to write it. `root` is where the caller reaches this API."""
        view = view_unit(unit)
        address = self.find_address(unit) if view.access_url is not None else None
        if address is None:
            gone: Json = {"access_url": None, "public_url": None}
            # What it says about an address that is there is no longer true; what it waits for still is.
            return view.model_copy(update=gone if view.public_url is None else {**gone, "public_message": None})
        # The Service of a simulated unit exists, but this API passes no calls on to it.
        path = None if isinstance(address, Simulated) else self.find_proxy_path(unit)
        return view.model_copy(update={"proxy_url": f"{root}{path}" if path else None})


def view_unit(unit: Json) -> UnitView:
    annotations = annotations_of(unit)
    spec = GPUUnitSpec.model_validate(unit["spec"])
    status = GPUUnitStatus.of(unit)
    published = find_condition(status.conditions, "Published")
    common = view_common(unit, status, UnitView, Phase.PENDING)
    view = UnitView(
        **(common | fields_of(spec, UnitView) | {"ssh": _ssh_view(spec.ssh)}),
        source_stock_name=annotations.get(names.ANNOTATION_SOURCE_STOCK_NAME),
        source_stock_namespace=annotations.get(names.ANNOTATION_SOURCE_STOCK_NAMESPACE),
        serverless_status=_serverless_status(unit["metadata"]["namespace"], spec.serverless),
        ssh_status=status.ssh,
        public_message=published.message if published else None,
    )
    if not is_being_deleted(unit):
        return view
    return view.model_copy(update=dict.fromkeys(("ssh_status", "access_url", "public_url", "public_message")))


def _ssh_view(ssh: Ssh | None) -> SshView | None:
    if ssh is None:
        return None
    return SshView.model_validate({**ssh.model_dump(), "has_token": ssh.token_hash is not None})


def _serverless_status(namespace: str, serverless: Serverless | None) -> ServerlessStatus | None:
    tenant = tenant_of(namespace)
    if serverless is None or tenant is None:
        return None
    framework = serverless.framework
    return ServerlessStatus(
        consumer=consumer_name(tenant, serverless.request_id),
        socket_path=framework.socket_path,
        invoke_path=framework.invoke_path,
        health_path=framework.health_path,
    )


def view_gpu(reading: Reading) -> GpuView:
    device = reading.device
    return GpuView(
        gpu=device.gpu,
        uuid=device.uuid,
        product=device.product,
        node=device.node,
        partition=device.partition or None,
        utilization_percent=reading.utilization_percent,
        memory_used_mib=reading.used_mib,
        memory_free_mib=reading.free_mib,
        memory_total_mib=reading.total_mib,
    )


async def watch_units(
    client: BoundedClient, namespace: str, last_seen: str | None, show: Callable[[Json], UnitView]
) -> AsyncGenerator[bytes, None]:
    version = last_seen
    while True:
        try:
            if version is None:
                version, events = await _list(client, namespace, show)
                for event in events:
                    yield event
            async for seen, event in _round(client, namespace, version, show):
                version = seen
                yield event
            yield b": still there\n\n"
        except GoneError:
            version = None
            yield build_event("resync", None, {})
        except KubeError as error:
            if version is None or error.status in REFUSALS:
                raise
            if error.status == TOO_NEW:
                version = None
                yield build_event("resync", None, {})
                continue
            yield b": Kubernetes is away\n\n"
            await asyncio.sleep(RETRY_SECONDS)


async def _list(client: BoundedClient, namespace: str, show: Callable[[Json], UnitView]) -> tuple[str, list[bytes]]:
    items: list[Json] = []
    async for page in list_pages(client, GPU_UNITS.collection(namespace), {}, PAGE):
        items += page["items"]
    version = page["metadata"]["resourceVersion"]
    # The id comes last: a caller that is cut off in the middle of the list has to get all of it again.
    end = f"id: {version}\n\n".encode()
    return version, [*(build_event("added", None, show(item).to_json()) for item in items), end]


async def _round(
    client: BoundedClient, namespace: str, version: str, show: Callable[[Json], UnitView]
) -> AsyncGenerator[tuple[str, bytes], None]:
    params = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(ROUND_SECONDS),
    }
    async for line in client.lines(GPU_UNITS.collection(namespace), params, silence=2 * ROUND_SECONDS):
        event = parse_event(line)
        item = event["object"]
        match event["type"]:
            case "BOOKMARK":
                version = item["metadata"]["resourceVersion"]
                yield version, f"id: {version}\n\n".encode()
            case kind:
                version = item["metadata"]["resourceVersion"]
                yield version, build_event(NAMES[kind], version, show(item).to_json())
