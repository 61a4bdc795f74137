"""Answers of the API as its contract has them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_platform.domain.json_text import Json


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat().replace("+00:00", "Z")


def unit(name: str = "demo", **changes: Any) -> Json:
    return {
        "name": name,
        "namespace": "runtime-instance",
        "lifecycle": "instance",
        "specName": "host.1",
        "sourceStockName": "host-0",
        "operationID": "cli-1",
        "image": "python:3.12",
        "memory": "1Gi",
        "gpu": 0,
        "template": {
            "command": ["python"],
            "args": ["-m", "http.server"],
            "envs": [{"name": "A", "value": "1"}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "probes": {"readiness": {"http": {"port": "http"}}},
        },
        "access": {"primaryPort": "http", "scheme": "http"},
        "running": True,
        "phase": "Ready",
        "readyReplicas": 1,
        "generation": 1,
        "observedGeneration": 1,
        "createdAt": ago(hours=5, minutes=12.4),
        "nodeName": "host",
        "accessURL": "http://unit-demo.runtime-instance.svc.cluster.local:8080",
        "reason": "UnitReady",
        "message": "the unit's pod is ready",
        **changes,
    }


def progressing(name: str = "demo", **changes: Any) -> Json:
    return unit(name, **{"phase": "Progressing", "reason": "UnitProgressing", "message": "its pod starts", **changes})


def unit_metrics() -> Json:
    whole = {"gpu": "0", "uuid": "GPU-a", "product": "H100", "node": "node-a"}
    figures = {"utilizationPercent": 75, "memoryUsedMiB": 61440, "memoryFreeMiB": 20480, "memoryTotalMiB": 81920}
    part = {**whole, "gpu": "1", "partition": "2"}
    return {"unit": "demo", "readAt": ago(seconds=3), "devices": [{**whole, **figures}, part]}


def stock_unit(name: str = "seed-0", state: str = "available", **changes: Any) -> Json:
    return {
        "name": name,
        "namespace": "runtime-stock",
        "lifecycle": "stock",
        "pool": "seed",
        "specName": "g1.1",
        "state": state,
        "phase": "Ready" if state == "available" else "Progressing",
        "createdAt": ago(hours=3, minutes=7),
        **changes,
    }


def pool(name: str = "t4", **changes: Any) -> Json:
    return {
        "name": name,
        "namespace": "runtime-stock",
        "specName": "t4.1",
        "replicas": 3,
        "replenish": "Always",
        "available": 3,
        "claimed": 0,
        "phase": "Ready",
        "generation": 1,
        "observedGeneration": 1,
        "createdAt": ago(days=2, hours=4),
        **changes,
    }


def job(status: str = "pending", **changes: Any) -> Json:
    return {
        "id": "cli-7",
        "operationID": "cli-7",
        "type": "seed_stock_units",
        "status": status,
        "objectName": "seed",
        "objectNamespace": "runtime-stock",
        "createdAt": ago(seconds=3),
        "updatedAt": ago(seconds=1),
        **changes,
    }


def stack(*, recorded: bool = True, **changes: Any) -> Json:
    said = {
        "recordedHash": "ab" * 32,
        "recordedAt": ago(hours=5, minutes=12.4),
        "resources": 2,
        "outputs": {"uid": "u-1"},
    }
    return {
        "name": "gpu-unit/default.demo",
        "recorded": recorded,
        "acceptedHash": "ab" * 32,
        "failures": 0,
        **(said if recorded else {}),
        **changes,
    }


def preview(phase: str = "Pending", **changes: Any) -> Json:
    return {"operationID": "cli-7", "unit": "demo", "phase": phase, "createdAt": ago(seconds=3), **changes}


def spec(name: str = "t4.1") -> Json:
    return {
        "name": name,
        "cpu": "4",
        "memory": "16Gi",
        "gpu": 1,
        "gpuProduct": "Tesla-T4",
        "nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "userNamespaces": False,
        "pricePerHour": "0.35",
    }


def health(**changes: Any) -> Json:
    return {
        "startedAt": ago(minutes=5),
        "uptimeSeconds": 312,
        "kubernetesConnected": True,
        "nodeCount": 5,
        "readyNodeCount": 5,
        "stockUnitCount": 2,
        "activeUnitCount": 1,
        "totalGpuCapacity": 32,
        "totalGpuAllocatable": 32,
        "totalGPUCapacity": 32,
        "totalGPUAllocatable": 32,
        "gpuProducts": [{"product": "Tesla-T4", "nodeCount": 4, "capacity": 32, "allocatable": 32}],
        "degraded": [],
        **changes,
    }


def storage(name: str = "weights", **changes: Any) -> Json:
    return {
        "name": name,
        "namespace": "runtime-instance",
        "size": "10Gi",
        "accessor": {"enabled": False},
        "retain": False,
        "phase": "Ready",
        "claimName": name,
        "capacity": "10Gi",
        "mountedBy": ["train"],
        "prepareStatus": {"phase": "NotRequested", "recoveryPhase": "None"},
        "accessorStatus": {"phase": "Disabled"},
        "operationID": "cli-1",
        "generation": 1,
        "observedGeneration": 1,
        "createdAt": ago(minutes=5, seconds=2),
        "stack": f"gpu-storage/default.{name}",
        "reason": "StorageReady",
        **changes,
    }


def function(name: str = "words", **changes: Any) -> Json:
    return {
        "name": name,
        "namespace": "runtime-instance",
        "specName": "host.1",
        "image": "python:3.12",
        "template": {"command": ["python"], "args": ["-m", "serverless.framework"]},
        "concurrency": 2,
        "minWorkers": 1,
        "maxWorkers": 4,
        "idleTimeoutSeconds": 300,
        "maxAttempts": 3,
        "ackWaitSeconds": 30,
        "queueLimit": 10_000,
        "phase": "Ready",
        "workers": 1,
        "readyWorkers": 1,
        "generation": 1,
        "observedGeneration": 1,
        "createdAt": ago(minutes=5, seconds=2),
        "stack": "gpu-function/default.words",
        **changes,
    }


def call(name: str = "inv-1", **changes: Any) -> Json:
    return {
        "invocationID": name,
        "serverlessRequestID": "words",
        "mode": "sync",
        "state": "succeeded",
        "attempts": 1,
        "worker": "words-worker-0",
        "acceptedAt": ago(seconds=7),
        "expiresAt": ago(days=-3),
        "result": {"statusCode": 200, "contentType": "application/json", "body": {"words": 3}},
        **changes,
    }
