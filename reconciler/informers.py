"""The informers of the reconciler: one watch-fed cache per kind, with the indexes and look-ups of the controllers.

Objects are shared and read-only.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import labels_of
from gpu_platform.domain.mount_holds import HolderKind, hold_of
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stock import is_available, is_claimed
from gpu_platform.kube import KubeClient, ResourcePath
from gpu_platform.kube.informer import ObjectCache, WatchTiming
from gpu_platform.kube.paths import (
    ENDPOINT_SLICES,
    GPU_FUNCTIONS,
    GPU_SPECS,
    GPU_STORAGES,
    GPU_UNITS,
    JOBS,
    NAMESPACES,
    NODES,
    OPERATIONS,
    PATH_OF_KIND,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STOCK_POOLS,
    STORAGE_CLASSES,
)
from reconciler.child_diff import UnitChild
from reconciler.units.pod_status import find_node_problem, find_unschedulable

OURS = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY_VALUE}"

API_SERVER = "kubernetes.io/service-name=kubernetes"
"""The EndpointSlices of the Service `kubernetes`: the API server's own addresses."""

CLAIMED = "claimed"
WAITING = "waiting"


class World:
    def __init__(self, client: KubeClient, timing: WatchTiming, *, with_http_routes: bool = False) -> None:
        """Not every cluster knows HTTPRoutes, and a kind that is not there cannot be followed."""
        of_units = {
            "spec": _spec_of,
            "pool": _pool_of,
            "stock": _stock_state_of,
            "function": _function_of,
            "worker-name": _worker_name_of,
            "storage": _mounted_storages_of,
        }
        of_pods = {
            "unit-uid": _unit_uid_of,
            "unschedulable": _unschedulable_namespace_of,
            "storage": _storage_label_of,
            "node": _node_of,
        }
        of_storages = {"source": _copied_storage_of, "unit": _mounting_unit_of}
        self.caches: list[ObjectCache] = []

        def follow(path: ResourcePath, **options: Any) -> ObjectCache:
            cache = ObjectCache(client, path, timing=timing, **options)
            self.caches.append(cache)
            return cache

        self.units = follow(GPU_UNITS, indexes=of_units)
        self.pools = follow(STOCK_POOLS, indexes={"spec": _spec_of})
        self.functions = follow(GPU_FUNCTIONS, indexes={"spec": _spec_of})
        self.storages = follow(GPU_STORAGES, indexes=of_storages)
        self.storage_classes = follow(STORAGE_CLASSES)
        self.specs = follow(GPU_SPECS)
        self.operations = follow(OPERATIONS, indexes={"object-uid": _object_uids_of})
        self.namespaces = follow(NAMESPACES)
        self.nodes = follow(NODES)
        self.accepted: Mapping[str, ObjectCache] = {
            "GPUUnit": self.units,
            "GPUStorage": self.storages,
            "GPUFunction": self.functions,
            "StockPool": self.pools,
        }
        """The kinds whose objects the API accepts and stacks record."""

        # With the record of who set which field: `child_diff` compares by it.
        self.unit_children = {
            kind: follow(PATH_OF_KIND[kind], label_selector=OURS, with_managed_fields=True)
            for kind in UnitChild
            if with_http_routes or kind is not UnitChild.HTTP_ROUTE
        }
        self.deployments = self.unit_children[UnitChild.DEPLOYMENT]
        self.services = self.unit_children[UnitChild.SERVICE]
        self.network_policies = self.unit_children[UnitChild.NETWORK_POLICY]
        self.api_endpoints = follow(ENDPOINT_SLICES, namespace="default", label_selector=API_SERVER)
        self.claims = follow(PERSISTENT_VOLUME_CLAIMS, label_selector=OURS)
        self.jobs = follow(JOBS, label_selector=OURS, indexes={"storage": _storage_label_of})
        self.pods = follow(PODS, label_selector=OURS, indexes=of_pods)

    def find_spec(self, name: str) -> GPUSpecSpec | None:
        """An entry of the catalogue; None also when it does not fit the schema of this version."""
        entry = self.specs.get(None, name)
        return GPUSpecSpec.parse(entry["spec"]) if entry else None

    def api_servers(self) -> frozenset[tuple[str, int]]:
        """Addresses and ports at which the API server answers, besides its Service."""
        return frozenset(
            (address, port["port"])
            for item in self.api_endpoints.objects()
            if item.get("addressType") != "FQDN"
            for each in item.get("endpoints") or ()
            for address in each.get("addresses") or ()
            for port in item.get("ports") or ()
        )

    def pods_of(self, unit: Json) -> tuple[Json, ...]:
        """The pods of this very unit, not of an earlier one with its name."""
        return self.pods.by_index("unit-uid", unit["metadata"]["uid"])

    def pods_away(self, node: Json) -> tuple[Json, ...]:
        """The pods on this node, if it is not Ready: a change of any other node concerns none of them."""
        return self.pods.by_index("node", node["metadata"]["name"]) if find_node_problem(node) else ()

    def away_nodes(self, pods: Iterable[Json]) -> dict[str, str]:
        """The nodes of these pods that are not Ready, and why."""
        found = {name: self.nodes.get(None, name) for pod in pods for name in _node_of(pod)}
        problems = ((name, find_node_problem(node)) for name, node in found.items() if node is not None)
        return {name: problem for name, problem in problems if problem is not None}

    def claimed_stock(self) -> tuple[Json, ...]:
        """Stock that is claimed and not yet consumed: a hand-off is under way."""
        return self.units.by_index("stock", CLAIMED)

    def waiting_stock(self) -> tuple[Json, ...]:
        """Free stock that holds no GPUs yet."""
        return self.units.by_index("stock", WAITING)

    def unschedulable_stock_pods(self) -> tuple[Json, ...]:
        """Stock pods that take any GPU that becomes free."""
        return self.pods.by_index("unschedulable", names.STOCK_NAMESPACE)

    def operations_of(self, uid: str) -> tuple[Json, ...]:
        """The operations that are about this very object, from the time that they know it."""
        return self.operations.by_index("object-uid", uid)

    def stock_of(self, pool: str) -> tuple[Json, ...]:
        """The stock units of a pool."""
        return tuple(unit for unit in self.units.by_index("pool", pool) if _is_stock(unit))

    def workers_of(self, namespace: str, function: str) -> tuple[Json, ...]:
        """The units that take a function's calls, whoever made them."""
        return self.units.by_index("function", f"{namespace}/{function}")

    def named_as_workers_of(self, namespace: str, function: str) -> tuple[Json, ...]:
        """The units that have the name of one of a function's workers, whoever made them."""
        return self.units.by_index("worker-name", f"{namespace}/{function}")

    def units_mounting(self, namespace: str, storage: str) -> tuple[Json, ...]:
        """The tenants' units whose spec names this storage, whether or not they may mount it."""
        units = self.units.by_index("storage", f"{namespace}/{storage}")
        return tuple(unit for unit in units if not _is_stock(unit))

    def storages_of_unit(self, namespace: str, unit: str) -> tuple[Json, ...]:
        """The storages that are held for the unit of this name."""
        return self.storages.by_index("unit", f"{namespace}/{unit}")

    def copies_of(self, namespace: str, storage: str) -> tuple[Json, ...]:
        """The storages that are filled from this one."""
        return self.storages.by_index("source", f"{namespace}/{storage}")

    def instances_of(self, pool: str) -> tuple[Json, ...]:
        """The tenants' units that were taken from a pool."""
        return tuple(unit for unit in self.units.by_index("pool", pool) if not _is_stock(unit))


def _is_stock(unit: Json) -> bool:
    return names.is_stock_namespace(unit["metadata"]["namespace"])


def _unit_uid_of(pod: Json) -> Iterable[str]:
    if uid := labels_of(pod).get(names.LABEL_UNIT_UID):
        yield uid


def _node_of(pod: Json) -> Iterable[str]:
    if node := pod["spec"].get("nodeName"):
        yield node


def _object_uids_of(operation: Json) -> Iterable[str]:
    target = operation["spec"].get("target") or {}
    status = operation.get("status") or {}
    yield from filter(None, (target.get("uid"), status.get("targetUid")))


def _stock_state_of(unit: Json) -> Iterable[str]:
    if _is_stock(unit):
        if is_claimed(unit):
            yield CLAIMED
        elif not is_available(unit):
            yield WAITING


def _unschedulable_namespace_of(pod: Json) -> Iterable[str]:
    if find_unschedulable([pod]) is not None:
        yield pod["metadata"]["namespace"]


def function_key_of(unit: Json) -> tuple[str, str] | None:
    """The function whose calls this unit takes; stock takes none."""
    block = unit.get("spec", {}).get("serverless") or {}
    name = block.get("requestID")
    return (unit["metadata"]["namespace"], name) if name and not _is_stock(unit) else None


def _function_of(unit: Json) -> Iterable[str]:
    if key := function_key_of(unit):
        yield "/".join(key)


def _worker_name_of(unit: Json) -> Iterable[str]:
    if parsed := names.parse_worker_name(unit["metadata"]["name"]):
        yield f"{unit['metadata']['namespace']}/{parsed[0]}"


def _mounted_storages_of(unit: Json) -> Iterable[str]:
    for mount in unit.get("spec", {}).get("storageMounts") or ():
        yield f"{unit['metadata']['namespace']}/{mount['name']}"


def _storage_label_of(item: Json) -> Iterable[str]:
    if storage := labels_of(item).get(names.LABEL_STORAGE):
        yield f"{item['metadata']['namespace']}/{storage}"


def _copied_storage_of(storage: Json) -> Iterable[str]:
    if source := ((storage.get("spec") or {}).get("prepare") or {}).get("fromStorageName"):
        yield f"{storage['metadata']['namespace']}/{source}"


def _mounting_unit_of(storage: Json) -> Iterable[str]:
    hold = hold_of(storage)
    if hold is not None and hold.holder.kind is HolderKind.UNIT:
        yield f"{storage['metadata']['namespace']}/{hold.holder.name}"


def _spec_of(item: Json) -> Iterable[str]:
    if name := item.get("spec", {}).get("specName"):
        yield name


def _pool_of(item: Json) -> Iterable[str]:
    if pool := labels_of(item).get(names.LABEL_POOL):
        yield pool
