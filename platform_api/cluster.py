"""The API's view of Kubernetes: a client for requests, and caches for what must not cost a request anything."""

import asyncio
from collections.abc import Iterable
from functools import partial

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import labels_of
from gpu_platform.domain.operations import OperationKind
from gpu_platform.domain.stacks import LABEL_KIND
from gpu_platform.domain.stock import is_available
from gpu_platform.kube import KubeClient, ResourcePath
from gpu_platform.kube.informer import ObjectCache, WatchTiming
from gpu_platform.kube.paths import (
    GPU_FUNCTIONS,
    GPU_SPECS,
    GPU_STORAGES,
    GPU_UNITS,
    LEASES,
    NODES,
    OPERATIONS,
    PODS,
    STOCK_POOLS,
)
from gpu_platform.kube.requests import find
from gpu_platform.store.ledger import is_final
from platform_api.http.errors import unavailable
from platform_api.kube_health import BoundedClient, NoteWritten, Pulse

AVAILABLE = "available-by-spec"
BY_OWNER = "by-owner"
ACTIVE_BY_NAMESPACE = "active-by-namespace"
ACTIVE_BY_UNIT = "active-by-unit"
PODS_KNOWN_SECONDS = 30.0
"""Chosen by feel: an outage of the API server is rarely longer, and pods' addresses are rarely used again sooner."""
PODS_SILENT_SECONDS = PODS_KNOWN_SECONDS + 40.0
"""A watch on which nothing happens says nothing for as long as it lasts, which is up to 40 s."""
MANAGED = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY_VALUE}"


class Cluster:
    def __init__(self, client: KubeClient, timing: WatchTiming, note_written: NoteWritten | None = None) -> None:
        self.pulse = Pulse(client)
        self.client = BoundedClient(client, self.pulse, note_written)
        build = partial(ObjectCache, client, timing=timing)
        self.units = build(GPU_UNITS, indexes={AVAILABLE: _available_for})
        self.specs = build(GPU_SPECS)
        self.pools = build(STOCK_POOLS)
        self.storages = build(GPU_STORAGES)
        self.functions = build(GPU_FUNCTIONS)
        self.nodes = build(NODES)
        self.pods = build(PODS, label_selector=MANAGED, indexes={BY_OWNER: _owners_of})
        self.stacks = build(LEASES, namespace=names.SYSTEM_NAMESPACE, label_selector=LABEL_KIND)
        self.operations = build(
            OPERATIONS,
            keep=_keep_preview,
            indexes={ACTIVE_BY_NAMESPACE: _active_in_namespace, ACTIVE_BY_UNIT: _active_of_unit},
        )

        self.caches = (
            self.units,
            self.specs,
            self.pools,
            self.storages,
            self.functions,
            self.nodes,
            self.pods,
            self.stacks,
            self.operations,
        )
        self._by_path = {
            GPU_UNITS: self.units,
            GPU_SPECS: self.specs,
            GPU_STORAGES: self.storages,
            GPU_FUNCTIONS: self.functions,
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pulse.run())
            for cache in self.caches:
                group.create_task(cache.run())

    def available_stock(self, spec_name: str) -> tuple[Json, ...]:
        """Free and Ready, as of the last event."""
        return self.units.by_index(AVAILABLE, spec_name)

    async def find(self, path: ResourcePath, namespace: str | None, name: str) -> Json | None:
        """From memory; one that is too new for that, which any replica may have accepted, is looked up."""
        return self._by_path[path].get(namespace, name) or await find(self.client, path, name, namespace)

    def require_known_pods(self) -> None:
        """A 503 when Kubernetes has been away for long: an address may be another tenant's by now. Also when it is
        back, until the pods are followed again."""
        is_silent = self.pods.is_synced and self.pods.seconds_since_contact >= PODS_SILENT_SECONDS
        if is_silent or self.pulse.lost_seconds >= PODS_KNOWN_SECONDS:
            raise unavailable("Kubernetes has been away for too long to know where calls go")

    def pods_of(self, item: Json) -> tuple[Json, ...]:
        """Of this very unit, or of the file browser of this very storage, not of an earlier one with its name; as of
        the last event."""
        return self.pods.by_index(BY_OWNER, object_key(item["metadata"]["namespace"], item["metadata"]["uid"]))

    def require_listed(self, *caches: ObjectCache) -> None:
        """A 503 rather than an answer that lacks what was not listed yet."""
        if missing := [cache.name for cache in caches if not cache.is_synced]:
            raise unavailable(f"not listed yet: {', '.join(missing)}")

    def find_problems(self) -> tuple[str, ...]:
        """Why requests cannot be served just now; empty when they can."""
        if self.pulse.problem is not None:
            return (f"Kubernetes does not answer: {self.pulse.problem}",)
        return tuple(f"{cache.name}: not listed yet" for cache in self.caches if not cache.is_synced)


def _available_for(unit: Json) -> Iterable[str]:
    if names.is_stock_namespace(unit["metadata"]["namespace"]) and is_available(unit):
        yield unit["spec"].get("specName", "")


def _owners_of(pod: Json) -> Iterable[str]:
    """The unit that a pod runs, or the storage that it is the file browser of."""
    for label in (names.LABEL_UNIT_UID, names.LABEL_STORAGE_ACCESSOR):
        if uid := labels_of(pod).get(label):
            yield object_key(pod["metadata"]["namespace"], uid)


def _keep_preview(operation: Json) -> Json:
    """Returns a preview as it is, and of any other operation its identity: a tenant has thousands of them."""
    if operation["spec"].get("kind") == OperationKind.PREVIEW_UNIT:
        return operation
    metadata = operation["metadata"]
    return {"metadata": {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}}


def _active_in_namespace(operation: Json) -> Iterable[str]:
    if _is_active_preview(operation):
        yield operation["metadata"]["namespace"]


def _active_of_unit(operation: Json) -> Iterable[str]:
    if _is_active_preview(operation):
        yield object_key(operation["metadata"]["namespace"], operation["spec"]["target"].get("uid") or "")


def object_key(namespace: str, uid: str) -> str:
    """With the namespace: what a pod or an Operation of another tenant says of itself does not matter here."""
    return f"{namespace}/{uid}"


def _is_active_preview(operation: Json) -> bool:
    return "spec" in operation and not is_final(operation)
