"""What to do next about one operation. Pure.

A pass takes one step and the next one looks again: whoever dies between two steps leaves a state that a row is for.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, is_being_deleted
from gpu_platform.domain.mount_holds import hold_of
from gpu_platform.domain.operations import (
    FINAL_PHASES,
    PREVIEW_PATIENCE,
    PREVIEW_RETENTION,
    RETENTION,
    TAKEOVER,
    OperationKind,
    OperationPhase,
    OperationStatus,
    is_made_by,
    is_trimmable,
)
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.stock import (
    PoolRequest,
    StockRequest,
    build_pool,
    build_spec,
    claimed_at,
    find_size_problem,
    is_from,
)
from gpu_platform.domain.units import UnitRequest, build_started, build_unit
from reconciler.guarded_writes import CreateObject, DeleteObject, ReplaceObject
from reconciler.operations.observe import Observed, Record, due_at, parse_stock_request

LONGEST_WAIT = timedelta(hours=1)
"""Between two looks at an operation that is only kept: clocks are set, and a week is long."""


@dataclass(frozen=True)
class ReleaseClaims:
    claims: tuple[Json, ...]


@dataclass(frozen=True)
class WriteStatus:
    status: OperationStatus


@dataclass(frozen=True)
class TrimRequest:
    """Its end keeps the request's hash only."""


@dataclass(frozen=True)
class RemoveOperation:
    pass


ObjectStep = CreateObject | ReplaceObject | DeleteObject
Step = ObjectStep | ReleaseClaims | WriteStatus | TrimRequest | RemoveOperation


@dataclass(frozen=True)
class Plan:
    step: Step | None = None
    wait: timedelta | None = None
    """Without a step: when to look again. None: a change of its object brings the next look."""

    why: str = ""

    @property
    def is_last(self) -> bool:
        """No further step follows from this one, until something changes."""
        match self.step:
            case None | RemoveOperation() | TrimRequest():
                return True
            case WriteStatus(status):
                return status.phase in FINAL_PHASES
        return False


def plan_operation(observed: Observed, now: datetime, takeover: timedelta = TAKEOVER) -> Plan:
    """Rows of one kind are tried from top to bottom. *Its* unit, claims, pool, function and storage are those that name
    this operation; *others* of its claims are those for stock that the unit does not come from.

    | operation                | state                                               | step                               |
    | ------------------------ | --------------------------------------------------- | ---------------------------------- |
    | at its end               | its request is recorded, and more than a number     | drop the request; if refused, go   |
    |                          |                                                     | on below and try within the hour   |
    | at its end               | its object exists; it is no StartUnit, PreviewUnit  | none                               |
    | at its end               | any other, no expiry set                            | expires in 7 days, PreviewUnit 1 h |
    | at its end               | expiry ahead                                        | none, look again then              |
    | at its end               | expiry passed, its object was made again            | expires in 7 days                  |
    | at its end               | expiry passed                                       | remove                             |
    | any                      | its target is in another namespace; a pool's, not   | Failed · InvalidTarget             |
    |                          | in that of the stock; a function's or a storage's,  |                                    |
    |                          | in that                                             |                                    |
    | Create…, StartUnit,      | younger than 15 s                                   | none, look again then              |
    | RecoverStorage           |                                                     |                                    |
    | CreateUnit               | its unit exists, it holds others                    | release them                       |
    | CreateUnit               | its unit exists                                     | Succeeded                          |
    | CreateUnit               | a unit of another operation exists, it holds claims | release them                       |
    | CreateUnit               | no unit, it holds claims                            | hold its storages, create the unit |
    |                          |                                                     | from the oldest                    |
    | CreateUnit               | the API server refuses that, nobody can read it, or | release the claims                 |
    |                          | its storages are not to be had                      |                                    |
    | CreateUnit               | its unit is not there, no claims                    | remove: nothing was accepted       |
    | StartUnit                | that unit is gone or going, it holds claims         | release them                       |
    | StartUnit                | that unit is gone or going                          | Failed · UnitGone                  |
    | StartUnit                | that unit is to run, it holds others                | release them                       |
    | StartUnit                | that unit is to run                                 | Succeeded                          |
    | StartUnit                | it was changed since and stopped, it holds claims   | release them                       |
    | StartUnit                | it is stopped, it holds claims                      | start it on the oldest             |
    | StartUnit                | the API server refuses that                         | release the claims                 |
    | StartUnit                | it is stopped, no claims                            | remove: nothing was accepted       |
    | CreateFunction           | its function exists                                 | Succeeded                          |
    | CreateStorage            | its storage exists                                  | Succeeded                          |
    | CreateFunction,          | none, or one of another operation                   | remove: nothing was accepted       |
    | CreateStorage            |                                                     |                                    |
    | RecoverStorage           | that storage was told, by its nonce                 | Succeeded                          |
    | RecoverStorage           | any other                                           | remove: nothing was accepted       |
    | Delete…                  | younger than 2 s                                    | none, look again then              |
    | DeleteStorage            | that storage exists, and somebody holds it          | remove: nothing was accepted       |
    | Delete…                  | that object exists                                  | delete it                          |
    | Delete…                  | that object is going                                | none, its end brings the next look |
    | Delete…                  | that object is gone                                 | Succeeded, expires in 7 days       |
    | SeedStockUnits, CreateStockPool | nobody can read the request                  | Failed · InvalidRequest            |
    | SeedStockUnits, CreateStockPool | the API server refuses spec or pool          | Failed · Refused                   |
    | SeedStockUnits, CreateStockPool | not begun                                    | Running                            |
    | SeedStockUnits, CreateStockPool | no GPUSpec and no size, or another size      | Failed · InvalidSpec               |
    | SeedStockUnits, CreateStockPool | no GPUSpec                                   | create it                          |
    | SeedStockUnits, CreateStockPool | its pool was there, and is gone              | Failed · PoolDeleted               |
    | SeedStockUnits, CreateStockPool | no pool                                      | create it                          |
    | SeedStockUnits, CreateStockPool | a pool of another operation                  | Failed · NameTaken                 |
    | CreateStockPool          | its pool exists                                     | Succeeded                          |
    | SeedStockUnits           | all units were made once                            | Succeeded                          |
    | SeedStockUnits           | its pool exists, not noted yet                      | note it                            |
    | SeedStockUnits           | some are still to be made                           | none, the pool brings the next look |
    | PreviewUnit              | younger than 10 min: it is a stack worker's         | none, look again then              |
    | PreviewUnit              | nobody finished it                                  | Failed · NoWorker, expires in 1 h  |
    """
    record = observed.record
    if record.status.phase in FINAL_PHASES:
        return _plan_end(observed, now)
    if not _is_in_reach(record):
        return _fail(record, now, "InvalidTarget", "its target is not where it may change something")
    if (left := due_at(record, takeover) - now) > timedelta():
        return Plan(wait=left, why="its owner may be at work")
    return _plan_due(observed, now)


def _plan_due(observed: Observed, now: datetime) -> Plan:
    match observed.record.spec.kind:
        case OperationKind.CREATE_UNIT:
            return _plan_create(observed, now)
        case OperationKind.START_UNIT:
            return _plan_start(observed, now)
        case OperationKind.CREATE_FUNCTION | OperationKind.CREATE_STORAGE:
            return _plan_declare(observed, now)
        case OperationKind.RECOVER_STORAGE:
            return _plan_recover(observed, now)
        case (
            OperationKind.DELETE_UNIT
            | OperationKind.DELETE_STOCK_POOL
            | OperationKind.DELETE_FUNCTION
            | OperationKind.DELETE_STORAGE
        ):
            return _plan_delete(observed, now)
        case OperationKind.SEED_STOCK_UNITS | OperationKind.CREATE_STOCK_POOL:
            return _plan_job(observed, now)
        case OperationKind.PREVIEW_UNIT:
            return _plan_preview(observed.record, now)


def _is_in_reach(record: Record) -> bool:
    """An operation acts in its own namespace only: no tenant's request may touch another's things."""
    namespace = record.spec.target.namespace
    if namespace != record.item["metadata"]["namespace"]:
        return False
    if record.object_kind == "GPUUnit":
        return True
    return names.is_stock_namespace(namespace) == (record.object_kind == "StockPool")


def _plan_end(observed: Observed, now: datetime) -> Plan:
    if not is_trimmable(observed.record.spec, observed.record.status):
        return _plan_kept(observed, now)
    if observed.refusal is None:
        return Plan(TrimRequest(), why="a replay needs the hash only")
    plan = _plan_kept(observed, now)
    return plan if plan.step is not None else Plan(wait=LONGEST_WAIT, why=observed.refusal)


def _plan_kept(observed: Observed, now: datetime) -> Plan:
    status = observed.record.status
    if status.expires_at is None:
        if observed.object_exists and _outlives_its_object(observed.record):
            return Plan()
        return Plan(WriteStatus(status.model_copy(update={"expires_at": now + _retention(observed.record)})))
    left = status.expires_at - now
    if left > timedelta():
        return Plan(wait=min(left, LONGEST_WAIT), why="it is kept for late retries")
    if observed.object_exists and _outlives_its_object(observed.record):
        # Its object was made again from its stack. The day cannot be taken back, but it can be put off.
        return Plan(WriteStatus(status.model_copy(update={"expires_at": now + _retention(observed.record)})))
    return Plan(RemoveOperation())


def _outlives_its_object(record: Record) -> bool:
    """A start does not: the generation is in its name, so nobody can ask for it again. Nor does a preview, which is
    only worth reading while it is new."""
    return record.spec.kind not in (OperationKind.START_UNIT, OperationKind.PREVIEW_UNIT)


def _retention(record: Record) -> timedelta:
    return PREVIEW_RETENTION if record.spec.kind is OperationKind.PREVIEW_UNIT else RETENTION


def _plan_create(observed: Observed, now: datetime) -> Plan:
    spec = observed.record.spec
    if observed.found is not None and is_made_by(observed.found, spec):
        return _plan_persisted(observed, observed.found, now)
    if not observed.claims:
        return Plan(RemoveOperation(), why="nothing was accepted")
    request = UnitRequest.parse(spec.request)
    if observed.found is not None or observed.refusal is not None or request is None:
        return Plan(ReleaseClaims(observed.claims), why=observed.refusal or "no unit can come of it")
    stock = _oldest(observed.claims, now)
    body = build_unit(request, spec.target.namespace, stock, spec.operation_id, spec.request_hash)
    return Plan(CreateObject("GPUUnit", body))


def _plan_start(observed: Observed, now: datetime) -> Plan:
    record = observed.record
    unit = _find_target(observed)
    if unit is None or is_being_deleted(unit):
        if observed.claims:
            return Plan(ReleaseClaims(observed.claims), why="its unit is gone")
        return _fail(record, now, "UnitGone", "the unit was deleted", object_is_gone=unit is None)
    unit = as_accepted(unit)
    if unit["spec"].get("running", True):
        return _plan_persisted(observed, unit, now)
    if not observed.claims:
        return Plan(RemoveOperation(), why="nothing was accepted")
    if observed.refusal is not None or _was_changed_since(unit, record):
        return Plan(ReleaseClaims(observed.claims), why=observed.refusal or "the unit was changed since")
    return Plan(ReplaceObject("GPUUnit", build_started(unit, _oldest(observed.claims, now))))


def _plan_persisted(observed: Observed, unit: Json, now: datetime) -> Plan:
    """The unit is as it was asked for: what is left is to give back what it did not need, and to say so."""
    others = tuple(stock for stock in observed.claims if not is_from(unit, stock))
    if others:
        return Plan(ReleaseClaims(others), why="the unit comes from other stock")
    return _succeed(observed.record, now, unit["metadata"]["uid"])


def _plan_declare(observed: Observed, now: datetime) -> Plan:
    """It takes nothing of anybody: what was not made can simply be asked for again."""
    item = observed.found
    if item is not None and is_made_by(item, observed.record.spec):
        return _succeed(observed.record, now, item["metadata"]["uid"])
    return Plan(RemoveOperation(), why="nothing was accepted")


def _plan_recover(observed: Observed, now: datetime) -> Plan:
    storage = _find_target(observed)
    if storage is None or annotations_of(storage).get(names.ANNOTATION_RECOVERY_NONCE) != observed.record.name:
        return Plan(RemoveOperation(), why="nothing was accepted")
    return _succeed(observed.record, now, storage["metadata"]["uid"])


def _plan_delete(observed: Observed, now: datetime) -> Plan:
    target = _find_target(observed)
    if target is None:
        return _succeed(observed.record, now, observed.record.spec.target.uid, object_is_gone=True)
    if is_being_deleted(target):
        return Plan(why="it is on its way out")
    kind = observed.record.object_kind
    is_storage = kind == "GPUStorage"
    if is_storage and hold_of(target) is not None:
        return Plan(RemoveOperation(), why="somebody was faster, and holds the storage: its end was not accepted")
    # A storage only as it was seen: a hold that came in between wins.
    return Plan(DeleteObject(kind, target, unchanged=is_storage, after_children=True))


def _plan_job(observed: Observed, now: datetime) -> Plan:
    record = observed.record
    spec = record.spec
    request = parse_stock_request(record)
    if request is None:
        return _fail(record, now, "InvalidRequest", "the request does not fit the schema of this version")
    if observed.refusal is not None:
        return _fail(record, now, "Refused", observed.refusal)
    if record.status.phase is not OperationPhase.RUNNING:
        begun = {"phase": OperationPhase.RUNNING, "started_at": now}
        return Plan(WriteStatus(record.status.model_copy(update=begun)))
    if problem := find_size_problem(request, _parse_catalogue(observed.catalogue)):
        return _fail(record, now, "InvalidSpec", problem)
    if observed.catalogue is None and (body := build_spec(request, spec.operation_id, spec.request_hash)) is not None:
        return Plan(CreateObject("GPUSpec", body))
    if observed.found is None or record.status.target_uid not in (None, observed.found["metadata"]["uid"]):
        if record.status.target_uid is not None:
            return _fail(record, now, "PoolDeleted", "the pool was deleted before it was filled")
        pool = build_pool(request, spec.target.name, spec.operation_id, spec.request_hash)
        return Plan(CreateObject("StockPool", pool))
    if annotations_of(observed.found).get(names.ANNOTATION_OPERATION_ID) != spec.operation_id:
        return _fail(record, now, "NameTaken", f"the pool {spec.target.name} exists, and is not of this operation")
    return _plan_filling(record, request, observed.found, now)


def _plan_filling(record: Record, request: StockRequest, pool: Json, now: datetime) -> Plan:
    uid = pool["metadata"]["uid"]
    seeded = pool.get("status", {}).get("seeded", 0)
    if isinstance(request, PoolRequest) or seeded >= request.replicas:
        return _succeed(record, now, uid)
    if record.status.target_uid is None:
        return Plan(WriteStatus(record.status.model_copy(update={"target_uid": uid})))
    return Plan(why=f"{seeded} of {request.replicas} stock units were made")


def _plan_preview(record: Record, now: datetime) -> Plan:
    minutes = PREVIEW_PATIENCE.seconds // 60
    if record.status.phase is OperationPhase.RUNNING:
        message = f"a stack worker began it, and no one finished it within {minutes} minutes; ask again"
    else:
        message = f"no stack worker took it up within {minutes} minutes; does `gpu-platform stack-worker` run?"
    return _fail(record, now, "NoWorker", message)


def _succeed(record: Record, now: datetime, uid: str | None, *, object_is_gone: bool = False) -> Plan:
    update = {"phase": OperationPhase.SUCCEEDED, "target_uid": uid}
    return _finish(record, now, update, object_is_gone=object_is_gone)


def _fail(record: Record, now: datetime, reason: str, message: str, *, object_is_gone: bool = False) -> Plan:
    update = {"phase": OperationPhase.FAILED, "reason": reason, "message": message}
    return _finish(record, now, update, object_is_gone=object_is_gone)


def _finish(record: Record, now: datetime, update: Json, *, object_is_gone: bool) -> Plan:
    expiry = {"expires_at": now + _retention(record)} if object_is_gone or not _outlives_its_object(record) else {}
    return Plan(WriteStatus(record.status.model_copy(update={**update, "finished_at": now, **expiry})))


def _find_target(observed: Observed) -> Json | None:
    """That very object, not another one of its name."""
    found = observed.found
    return found if found is not None and found["metadata"]["uid"] == observed.record.spec.target.uid else None


def _was_changed_since(unit: Json, record: Record) -> bool:
    """Whether the stopped unit is no longer the one that was to start. It may have been started by a second try and
    been stopped again: who stopped it last does not want it to run."""
    generation = record.spec.request.get("generation")
    return generation is not None and generation != unit["metadata"].get("generation")


def _oldest(claims: tuple[Json, ...], now: datetime) -> Json:
    def age(stock: Json) -> tuple[datetime, str]:
        since = claimed_at(stock, now) or datetime.fromisoformat(stock["metadata"]["creationTimestamp"])
        return since, stock["metadata"]["name"]

    return min(claims, key=age)


def _parse_catalogue(entry: Json | None) -> GPUSpecSpec | None:
    return None if entry is None else GPUSpecSpec.model_validate(entry["spec"])
