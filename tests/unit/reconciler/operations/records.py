"""Operations as they are recorded, and what is planned about them, for tests of that decision."""

from datetime import datetime, timedelta

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import TAKEOVER, OperationPhase, OperationSpec, OperationStatus
from reconciler.operations.observe import Observed, Record
from reconciler.operations.plan import Plan, WriteStatus, plan_operation
from tests.support.builders import NOW, make_stock

HASH = "a" * 64
SECOND = timedelta(seconds=1)
UNIT_REQUEST = {"name": "demo", "specName": "g1.1", "image": "example/train"}
SEED_REQUEST = {"specName": "g1.1", "replicas": 2, "memory": "16Gi", "gpu": 1}
POOL_REQUEST = {"name": "pool", "specName": "g1.1", "replicas": 2}
RUNNING = {"phase": "Running", "startedAt": "2030-01-01T11:59:00Z"}


def make_record(
    kind: str,
    request: Json | None = None,
    *,
    age: timedelta = TAKEOVER,
    status: Json | None = None,
    uid: str | None = None,
    namespace: str = "runtime-instance",
) -> Record:
    is_job = kind in ("SeedStockUnits", "CreateStockPool")
    home = names.STOCK_NAMESPACE if is_job else "runtime-instance"
    kinds = {"Function": "GPUFunction", "Storage": "GPUStorage"}
    of_tenants = next((each for word, each in kinds.items() if kind.endswith(word)), "GPUUnit")
    target = {"kind": "StockPool" if is_job else of_tenants, "namespace": home, "name": "pool" if is_job else "demo"}
    spec = {"operationID": "mine", "kind": kind, "requestHash": HASH, "request": request or {}, "target": target}
    if uid:
        target["uid"] = uid
    metadata = {
        "name": "op-1",
        "namespace": home if namespace == "runtime-instance" else namespace,
        "uid": "uid-op",
        "resourceVersion": "5",
        "creationTimestamp": (NOW - age).isoformat(),
    }
    return Record(
        {"metadata": metadata, "spec": spec, "status": status or {}},
        OperationSpec.model_validate(spec),
        OperationStatus.model_validate(status or {}),
    )


def claim(name: str = "pool-0", at: datetime = NOW - TAKEOVER) -> Json:
    stock = make_stock(name, claimed_by="runtime-instance/demo")
    stock["metadata"]["annotations"] |= {
        names.ANNOTATION_OPERATION_ID: "op-1",
        names.ANNOTATION_CLAIMED_AT: at.isoformat(),
    }
    return stock


def plan(observed: Observed) -> Plan:
    return plan_operation(observed, NOW)


def status_after(observed: Observed) -> OperationStatus:
    step = plan(observed).step
    assert isinstance(step, WriteStatus)
    return step.status


def outcome(observed: Observed) -> tuple[OperationPhase | None, str | None]:
    status = status_after(observed)
    assert status.finished_at == NOW
    assert plan(observed).is_last
    return status.phase, status.reason
