"""Objects as the API server would show them, for tests of pure functions."""

from datetime import UTC, datetime
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
CREATED = "2030-01-01T11:59:58+00:00"


def make_unit(name: str = "demo", namespace: str = "runtime-instance", **spec: Any) -> Json:
    return _make("GPUUnit", name, namespace, {"specName": "g1.1", "image": "example/train", **spec})


def make_function(name: str = "words", namespace: str = "runtime-instance", **spec: Any) -> Json:
    return _make("GPUFunction", name, namespace, {"specName": "g1.1", "image": "example/words", **spec})


def make_storage(name: str = "weights", namespace: str = "runtime-instance", **spec: Any) -> Json:
    storage = _make("GPUStorage", name, namespace, {"size": "1Gi", **spec})
    storage["metadata"]["finalizers"] = [names.STORAGE_FINALIZER]
    return storage


def make_stock(name: str = "pool-0", *, claimed_by: str | None = None, phase: str = "Ready", **metadata: Any) -> Json:
    stock = make_unit(name, names.STOCK_NAMESPACE, memory="16Gi", gpu=1)
    stock["metadata"]["labels"] = {
        names.LABEL_POOL: "pool",
        names.LABEL_STOCK_STATE: names.STOCK_CLAIMED if claimed_by else names.STOCK_FREE,
    }
    if claimed_by:
        stock["metadata"]["annotations"] = {
            names.ANNOTATION_CLAIMED_BY: claimed_by,
            names.ANNOTATION_CLAIMED_AT: "2030-01-01T11:59:59+00:00",
        }
    stock["metadata"] |= metadata
    stock["status"] = {"phase": phase, "nodeName": "sim-h100-0"}
    return stock


def make_pool(replicas: int = 2, *, status: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "StockPool",
        "metadata": {
            "name": "pool",
            "namespace": names.STOCK_NAMESPACE,
            "uid": "uid-pool",
            "resourceVersion": "3",
            "generation": 1,
        },
        "spec": {"specName": "g1.1", "replicas": replicas, **spec},
        "status": status or {},
    }


def make_pod(
    name: str = "unit-demo-1",
    *,
    node: str | None = "sim-h100-0",
    containers: list[Json] | None = None,
    conditions: list[Json] | None = None,
    phase: str = "Pending",
    labels: Json | None = None,
) -> Json:
    return {
        "metadata": {"name": name, "namespace": "runtime-instance", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "containerStatuses": containers or [], "conditions": conditions or []},
    }


def as_stored(desired: Json, **status: Any) -> Json:
    """A child as the API server shows it after we wrote it."""
    annotations: Json = {f"f:{key}": {} for key in desired["metadata"].get("annotations", {})}
    fields = {"f:metadata": {"f:annotations": {".": {}, **annotations}}, "f:spec": {}}
    metadata = {
        **desired["metadata"],
        "uid": "uid-child",
        "resourceVersion": "9",
        "generation": 1,
        "managedFields": [{"manager": "gpu-platform-reconciler", "fieldsV1": fields}],
    }
    return {**desired, "metadata": metadata, "status": status}


def _make(kind: str, name: str, namespace: str, spec: Json) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": CREATED,
            "labels": {},
            "annotations": {},
        },
        "spec": spec,
    }
