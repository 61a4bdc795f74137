"""A function's workers: the name of each, what it is to be, and whether it is; and how long workers take to start."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, Histogram
from pydantic import ValidationError

from gpu_platform.controller.loop import Key
from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import build_object, controller_of, find_instant, labels_of
from gpu_platform.domain.stock import claimed_at
from gpu_platform.domain.units import GPUUnitSpec, Phase, Serverless, source_annotations, source_labels

Pods = Callable[[Json], Sequence[Json]]
SCHEDULED = "PodScheduled"


def claim_mark(function: Json) -> str:
    """In the place of an Operation's name, and never one: a claim that names no Operation has a minute, in which the
    worker is made. If this process dies before, the stock is free again after that."""
    return f"function/{function['metadata']['namespace']}/{function['metadata']['name']}"


def find_ordinal(function: Json, unit: Json) -> int | None:
    """Which of the function's workers this unit is, by its name."""
    parsed = names.parse_worker_name(unit["metadata"]["name"])
    return parsed[1] if parsed is not None and parsed[0] == function["metadata"]["name"] else None


def is_made_by(unit: Json, function: Json) -> bool:
    """By this very function, not by an earlier one of its name."""
    owner = controller_of(unit)
    return owner is not None and owner["uid"] == function["metadata"]["uid"]


def is_leftover(unit: Json, function: Json) -> bool:
    """Of an earlier function of this name, or on its way out: its name will be free soon."""
    if "deletionTimestamp" in unit["metadata"]:
        return True
    owner = controller_of(unit)
    return (
        owner is not None
        and owner["kind"] == "GPUFunction"
        and owner["name"] == function["metadata"]["name"]
        and owner["uid"] != function["metadata"]["uid"]
    )


def build_worker(
    function: Json, spec: GPUFunctionSpec, ordinal: int, stock: Json, *, woken_at: datetime, claimed_at: datetime
) -> Json:
    """The worker that takes over this claimed stock. Nobody accepted it, so no stack keeps it."""
    metadata = function["metadata"]
    size = GPUUnitSpec(spec_name=spec.spec_name, memory=stock["spec"].get("memory"), gpu=stock["spec"].get("gpu"))
    return build_object(
        "GPUUnit",
        names.worker_name(metadata["name"], ordinal),
        metadata["namespace"],
        _as_wanted(size, function, spec),
        labels={**source_labels(stock), names.LABEL_FUNCTION: metadata["name"]},
        annotations={
            **source_annotations(stock),
            names.ANNOTATION_WOKEN_AT: woken_at.isoformat(),
            names.ANNOTATION_CLAIMED_AT: claimed_at.isoformat(),
        },
        owner=names.owner_reference("GPUFunction", metadata["name"], metadata["uid"]),
    )


def renew_worker(unit: Json, function: Json, spec: GPUFunctionSpec) -> Json | None:
    """The worker as the function says now, as it was seen otherwise; None when it is so already."""
    now = GPUUnitSpec.model_validate(unit["spec"])
    wanted = _as_wanted(now, function, spec)
    labels = {**labels_of(unit), names.LABEL_FUNCTION: function["metadata"]["name"]}
    if wanted == now and labels == labels_of(unit):
        return None
    return {**unit, "metadata": {**unit["metadata"], "labels": labels}, "spec": wanted.to_json()}


def is_replaced(unit: Json, spec: GPUFunctionSpec) -> bool:
    """Whether it cannot become what is wanted: it has another size, gave its GPUs back, or cannot be read."""
    try:
        now = GPUUnitSpec.model_validate(unit["spec"])
    except ValidationError:
        return True
    return now.spec_name != spec.spec_name or not now.running


def _as_wanted(unit: GPUUnitSpec, function: Json, spec: GPUFunctionSpec) -> GPUUnitSpec:
    """The size stays that of the stock."""
    return unit.model_copy(
        update={
            "image": spec.image,
            "template": spec.template,
            "access": None,
            "serverless": Serverless(
                request_id=function["metadata"]["name"],
                min_available_count=spec.min_workers,
                idle_timeout_seconds=spec.idle_timeout_seconds,
                framework=spec.framework,
            ),
        }
    )


class WorkerStarts:
    """Counts each worker once, and only those that were seen to start: what was there before this process came, another
    one has counted."""

    def __init__(self, registry: CollectorRegistry, now: Callable[[], datetime]) -> None:
        self._now = now
        self._starting: dict[Key, frozenset[str]] = {}
        self._seconds = Histogram(
            "gpu_platform_reconciler_worker_start_seconds",
            "Time from the decision that a function needs a worker until its stock was claimed, its pod had a node, it "
            "was Ready",
            ("phase",),
            registry=registry,
            buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
        )

    def note(self, function: Key, workers: Iterable[Json], pods_of: Pods) -> None:
        before = self._starting.get(function, frozenset())
        starting: set[str] = set()
        for worker in workers:
            if worker.get("status", {}).get("phase") != Phase.READY:
                starting.add(worker["metadata"]["uid"])
            elif worker["metadata"]["uid"] in before:
                for phase, seconds in measure_start(worker, pods_of(worker), self._now()):
                    self._seconds.labels(phase).observe(seconds)
        self._starting[function] = frozenset(starting)

    def forget(self, function: Key) -> None:
        self._starting.pop(function, None)


def measure_start(worker: Json, pods: Sequence[Json], ready_at: datetime) -> Iterator[tuple[str, float]]:
    """Seconds since it was decided, by phase; nothing for a unit that joined by itself."""
    woken_at = find_instant(worker, names.ANNOTATION_WOKEN_AT, ready_at)
    if woken_at is None:
        return
    instants = {"claimed": claimed_at(worker, ready_at), "scheduled": _scheduled_at(pods), "ready": ready_at}
    for phase, instant in instants.items():
        if instant is not None:
            # Conditions tell whole seconds.
            yield phase, max(0.0, (instant - woken_at).total_seconds())


def _scheduled_at(pods: Sequence[Json]) -> datetime | None:
    conditions = (each for pod in pods for each in pod.get("status", {}).get("conditions") or ())
    times = [
        each["lastTransitionTime"] for each in conditions if each["type"] == SCHEDULED and each["status"] == "True"
    ]
    return datetime.fromisoformat(min(times)) if times else None
