"""What to do about one function: which workers to make, change and take away, and what to say of it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count

from gpu_platform.domain import names
from gpu_platform.domain.conditions import condition_of, set_condition
from gpu_platform.domain.functions import FunctionPhase, FunctionReason, GPUFunctionSpec, GPUFunctionStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import is_being_deleted
from gpu_platform.domain.stock import claim_holder_of
from gpu_platform.domain.tenants import tenant_of
from gpu_platform.domain.units import Phase
from reconciler.functions.observe import Observed
from reconciler.functions.scaling_plan import Workers
from reconciler.functions.workers import find_ordinal, is_leftover, is_replaced, renew_worker
from reconciler.guarded_writes import DeleteObject, ReplaceObject

READY = "Ready"


@dataclass(frozen=True)
class CreateWorker:
    ordinal: int
    held: tuple[Json, ...]
    """Stock that a try that died has claimed for it."""


Write = CreateWorker | ReplaceObject | DeleteObject


@dataclass(frozen=True)
class Verdict:
    phase: FunctionPhase
    reason: FunctionReason
    message: str


@dataclass(frozen=True)
class Plan:
    writes: tuple[Write, ...]
    status: GPUFunctionStatus
    lacks_stock: bool = False


def find_problem(observed: Observed) -> Verdict | None:
    """What makes workers impossible, in words that say what to mend."""
    metadata = observed.function["metadata"]
    if tenant_of(metadata["namespace"]) is None:
        return _invalid(f"functions live in the namespaces of tenants, and {metadata['namespace']} is none")
    if observed.spec is None:
        return _invalid("spec does not fit the schema of this version")
    if not observed.is_known_spec:
        return _invalid(f"spec.specName: there is no GPUSpec {observed.spec.spec_name!r}; see `kubectl get gpuspecs`")
    if observed.setup_problem is not None:
        return Verdict(FunctionPhase.PROGRESSING, FunctionReason.QUEUE_UNAVAILABLE, observed.setup_problem)
    return None


def count_workers(observed: Observed) -> Workers:
    """One that cannot start is one that starts: it keeps its place, and Kubernetes tries it again, ever later. Another
    one would not start either."""
    living = _living((*observed.own, *observed.joined))
    ready = sum(map(_is_ready, living))
    return Workers(ready, starting=len(living) - ready)


def plan_function(
    observed: Observed, wanted: int, queue_problem: str | None, now: datetime, refusal: str | None = None
) -> Plan:
    """`wanted` workers, of which those that joined are some. `refusal` is what the API server said to the last try, for
    as long as it is not tried again. Rows are tried from top to bottom.

    | function                           | writes  | phase · reason                                               |
    | ---------------------------------- | ------- | ------------------------------------------------------------ |
    | being deleted                      | none    | Terminating (its workers go by owner reference)              |
    | spec or catalogue entry is wrong   | none    | Failed · InvalidSpec                                         |
    | NATS is not configured, or there   | none    | Progressing · QueueUnavailable, what to mend                 |
    | are no credentials for workers     |         |                                                              |
    | NATS is away, or stores nothing    | workers | Progressing · QueueUnavailable, and why                      |
    | the API server refused a worker    | removes | Failed · WorkerFailed, the API server's words                |
    | fewer stock than workers to make   | workers | Progressing · NoStock                                        |
    | as many are Ready as are wanted    | workers | Ready · FunctionReady                                        |
    | a worker cannot start              | workers | Failed · WorkerFailed, the worker's words                    |
    | any other                          | workers | Progressing · WorkersStarting                                |

    Workers have ordinals. The lowest ones that can be had are wanted:

    | the name of an ordinal has           | wanted                | not wanted                          |
    | ------------------------------------ | --------------------- | ----------------------------------- |
    | nobody                               | claim stock, make it  | –                                   |
    | a stranger                           | take the next ordinal | –                                   |
    | a leftover of an earlier function    | wait                  | –                                   |
    | its own worker, on its way out       | wait                  | –                                   |
    | its own worker, of another size or stopped | remove it, then make it anew | remove it              |
    | its own worker, with another spec    | change it             | remove it, highest ordinal first    |
    | its own worker, as it should be      | –                     | remove it, highest ordinal first    |
    """
    if "deletionTimestamp" in observed.function["metadata"]:
        # No reason says it better: what the condition says stays.
        return Plan((), _status(observed, None, now).model_copy(update={"phase": FunctionPhase.TERMINATING}))
    problem = find_problem(observed)
    if problem is not None or observed.spec is None:
        return Plan((), _status(observed, problem, now))
    own_wanted = max(0, wanted - len(_living(observed.joined)))
    writes: tuple[Write, ...] = (
        *_plan_surplus(observed, own_wanted),
        *_plan_slots(observed, observed.spec, own_wanted),
    )
    if refusal is not None:
        removals = tuple(write for write in writes if isinstance(write, DeleteObject))
        refusal = refusal if removals != writes else None
        writes = removals
    lacks_stock = _lacks_stock(observed, writes)
    verdict = _judge(observed, wanted, queue_problem, refusal, lacks_stock=lacks_stock)
    return Plan(writes, _status(observed, verdict, now), lacks_stock)


def _judge(
    observed: Observed, wanted: int, queue_problem: str | None, refusal: str | None, *, lacks_stock: bool
) -> Verdict:
    workers = _living((*observed.own, *observed.joined))
    ready = sum(map(_is_ready, workers))
    so_far = f"{ready} of {wanted} workers are ready"
    if queue_problem is not None:
        return Verdict(FunctionPhase.PROGRESSING, FunctionReason.QUEUE_UNAVAILABLE, queue_problem)
    if refusal is not None:
        message = f"{so_far}; Kubernetes refuses another: {refusal}"
        return Verdict(FunctionPhase.FAILED, FunctionReason.WORKER_FAILED, message)
    if lacks_stock and observed.spec is not None:
        message = f"{so_far}; there is no free stock of {observed.spec.spec_name} for another"
        return Verdict(FunctionPhase.PROGRESSING, FunctionReason.NO_STOCK, message)
    if ready >= wanted:
        message = so_far if wanted else "takes calls; no worker is wanted"
        return Verdict(FunctionPhase.READY, FunctionReason.FUNCTION_READY, message)
    for worker in workers:
        if worker.get("status", {}).get("phase") == Phase.FAILED:
            message = f"{worker['metadata']['name']}: {_words_of(worker)}"
            return Verdict(FunctionPhase.FAILED, FunctionReason.WORKER_FAILED, message)
    return Verdict(FunctionPhase.PROGRESSING, FunctionReason.WORKERS_STARTING, so_far)


def _plan_surplus(observed: Observed, own_wanted: int) -> Iterator[DeleteObject]:
    wanted = set(_wanted_ordinals(observed, own_wanted))
    by_ordinal = sorted(((_ordinal_of(observed, unit), unit) for unit in observed.own), key=lambda pair: -pair[0])
    for ordinal, unit in by_ordinal:
        if ordinal not in wanted and not is_being_deleted(unit):
            yield DeleteObject("GPUUnit", unit)


def _plan_slots(observed: Observed, spec: GPUFunctionSpec, own_wanted: int) -> Iterator[Write]:
    own = {_ordinal_of(observed, unit): unit for unit in observed.own}
    blocked = {find_ordinal(observed.function, unit) for unit in observed.strangers}
    for ordinal in _wanted_ordinals(observed, own_wanted):
        unit = own.get(ordinal)
        if unit is None:
            if ordinal not in blocked:
                yield CreateWorker(ordinal, _held_for(observed, ordinal))
        elif is_being_deleted(unit):
            continue
        elif is_replaced(unit, spec):
            yield DeleteObject("GPUUnit", unit)
        elif (body := renew_worker(unit, observed.function, spec)) is not None:
            yield ReplaceObject("GPUUnit", body)


def _wanted_ordinals(observed: Observed, own_wanted: int) -> Iterator[int]:
    """The lowest, without those whose name a stranger keeps."""
    kept = {
        find_ordinal(observed.function, unit) for unit in observed.strangers if not is_leftover(unit, observed.function)
    }
    free = (ordinal for ordinal in count() if ordinal not in kept)
    return (ordinal for ordinal, _ in zip(free, range(own_wanted), strict=False))


def _held_for(observed: Observed, ordinal: int) -> tuple[Json, ...]:
    metadata = observed.function["metadata"]
    holder = names.claim_holder(metadata["namespace"], names.worker_name(metadata["name"], ordinal))
    return tuple(stock for stock in observed.held if claim_holder_of(stock) == holder)


def _lacks_stock(observed: Observed, writes: tuple[Write, ...]) -> bool:
    needed = sum(isinstance(write, CreateWorker) and not write.held for write in writes)
    return needed > len(observed.free)


def _ordinal_of(observed: Observed, unit: Json) -> int:
    """An own unit has one: whatever has another name has joined."""
    ordinal = find_ordinal(observed.function, unit)
    return -1 if ordinal is None else ordinal


def _living(units: tuple[Json, ...]) -> list[Json]:
    return [unit for unit in units if not is_being_deleted(unit) and unit["spec"].get("running", True)]


def _is_ready(unit: Json) -> bool:
    return bool(unit.get("status", {}).get("phase") == Phase.READY)


def _words_of(unit: Json) -> str:
    condition = condition_of(unit, READY)
    return "cannot start" if condition is None else str(condition.get("message", ""))


def _invalid(message: str) -> Verdict:
    return Verdict(FunctionPhase.FAILED, FunctionReason.INVALID_SPEC, message)


def _status(observed: Observed, verdict: Verdict | None, now: datetime) -> GPUFunctionStatus:
    """Counted from the units on every pass. Without a verdict, what the condition says stays."""
    old = GPUFunctionStatus.of(observed.function)
    generation = observed.function["metadata"].get("generation")
    workers = _living((*observed.own, *observed.joined))
    counted = {
        "workers": len(workers),
        "ready_workers": sum(map(_is_ready, workers)),
        "observed_generation": generation,
        "last_sync_time": now,
    }
    if verdict is None:
        return old.model_copy(update=counted)
    conditions = set_condition(
        old.conditions,
        READY,
        is_met=verdict.phase is FunctionPhase.READY,
        reason=verdict.reason,
        message=verdict.message,
        generation=generation,
        now=now,
    )
    return old.model_copy(update={**counted, "phase": verdict.phase, "conditions": conditions})
