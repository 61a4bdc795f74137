"""The drift controller: one object's spec against what was accepted for it. The table is `domain/stack_plan`."""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, Counter

from gpu_platform.controller.loop import Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.domain.drift import Difference, find_differences
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stack_plan import Action, Records, plan_stack
from gpu_platform.domain.stacks import OBJECT_KINDS, Intent, address_of, intent_of, parse_address
from gpu_platform.kube import KubeError
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.process import pass_point
from gpu_platform.store.stack_leases import PATHS, build_records, deletion_name
from reconciler.guarded_writes import Recorder
from reconciler.informers import World
from reconciler.metadata_reports import MetadataReports

log = logging.getLogger(__name__)
CORRECTED = "DriftCorrected"
REFUSED = "DriftNotCorrected"
AFTER_REFUSAL = timedelta(minutes=1)


class DriftController:
    name = "drift"

    def __init__(
        self,
        world: World,
        writer: ObjectClient,
        events: Recorder,
        registry: CollectorRegistry,
        now: Callable[[], datetime],
    ) -> None:
        self._world = world
        self._writer = writer
        self._events = events
        self._reports = MetadataReports(events, now)
        self._corrections = Counter(
            "gpu_platform_reconciler_drift_corrections",
            "Objects that somebody had edited behind the API, by what became of it.",
            ("kind", "result"),
            registry=registry,
        )
        self._objects = {OBJECT_KINDS[kind]: cache for kind, cache in world.accepted.items()}

    async def reconcile(self, project: str, stack: str) -> Result:
        address = parse_address(project, stack)
        item = self._objects[address.kind].get(address.namespace, address.name) if address is not None else None
        if item is None:
            return Done()
        await self._reports.report(item)
        intent = intent_of(item)
        if intent is None or plan_stack(self._records(item, intent)) is not Action.REVERT:
            return Done()
        return await self._put_back(item, intent)

    def triggers(self) -> tuple[Trigger, ...]:
        return tuple(Trigger(cache, keys_of) for cache in self._objects.values())

    def _records(self, item: Json, intent: Intent) -> Records:
        """Without the stack, of which nothing is needed to tell an edit from a wish."""
        end = self._world.operations.get(intent.address.namespace, deletion_name(intent.address, item, None))
        return build_records(item, stack=None, deletion=end, creation=None)

    async def _put_back(self, item: Json, intent: Intent) -> Result:
        """As it was seen: of a change that the API accepted meanwhile, which is one write too, this write undoes
        nothing, but meets a conflict."""
        address, path = intent.address, PATHS[intent.address.kind]
        fields = _name(find_differences(item, intent))
        told = {"stack": address.full_name, "fields": fields}
        try:
            await self._writer.replace(path.item(address.name, address.namespace), {**item, "spec": intent.spec})
        except KubeError as error:
            if not error.is_refusal:
                raise
            self._corrections.labels(item["kind"], "refused").inc()
            log.warning("drift.refused", extra=told | {"error": error.message})
            message = f"{fields} cannot be put back to what was accepted: {error.message}"
            await self._events.record(item, "Warning", REFUSED, message)
            return RequeueAfter(AFTER_REFUSAL, "the API server refuses what was accepted")
        pass_point("drift.put-back")
        self._corrections.labels(item["kind"], "corrected").inc()
        log.warning("drift.corrected", extra=told)
        message = f"{fields} was changed behind the API; what was accepted is back. Change it over the API instead."
        await self._events.record(item, "Warning", CORRECTED, message)
        return Done()


def keys_of(item: Json) -> Iterable[Key]:
    address = address_of(item)
    return [(address.project, address.stack)] if address is not None else []


def _name(differences: Sequence[Difference]) -> str:
    """Without the values: a unit's environment is nobody's business in an Event."""
    return ", ".join(difference.field for difference in differences)
