"""What is recorded of a unit, storage, function or pool: the object and its entry in the index of stacks, each read by
one GET; and waiting until a stack is recorded. However many requests wait for one stack, one asks.
"""

import asyncio
from datetime import datetime

from gpu_platform.api_models.stacks import PreviewView, StackView
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.operations import OperationPhase
from gpu_platform.domain.stacks import Intent, PreviewResult, StackRecord, intent_of, is_recorded
from gpu_platform.kube import KubeError
from gpu_platform.store.ledger import spec_of, status_of
from gpu_platform.store.stack_leases import find_record
from platform_api.http.errors import not_found
from platform_api.kube_health import BoundedClient
from platform_api.single_flight import SharedTasks

WAIT_SECONDS = 30.0
"""Recording one stack takes about a second; a queue of them, longer."""

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5

WAITING_LIMIT = 64
"""Requests that wait at once; beyond it, nobody waits. Each takes the place of another request that could be under
way, and asks Kubernetes twice a second."""


def view_stack(intent: Intent, record: StackRecord | None) -> StackView:
    """An error is shown whomever the record is about: a stack of this name that cannot be removed is in the way."""
    recorded = record.recorded if record is not None and record.uid == intent.uid else None
    return StackView(
        name=intent.address.full_name,
        recorded=is_recorded(record, intent),
        accepted_hash=intent.accepted_hash,
        recorded_hash=recorded.accepted_hash if recorded else None,
        recorded_at=recorded.at if recorded else None,
        resources=recorded.resources if recorded else None,
        outputs=recorded.outputs if recorded else None,
        error=record.error if record else None,
        failures=record.failures if record else 0,
    )


def view_preview(operation: Json) -> PreviewView:
    spec, status = spec_of(operation), status_of(operation)
    result = PreviewResult.model_validate(status.result) if status.result is not None else None
    return PreviewView(
        operation_id=spec.operation_id,
        unit=spec.target.name,
        phase=status.phase or OperationPhase.PENDING,
        reason=status.reason,
        message=status.message,
        changes=result.changes if result else None,
        steps=result.steps if result else None,
        created_at=datetime.fromisoformat(operation["metadata"]["creationTimestamp"]),
        finished_at=status.finished_at,
    )


async def get_stack(client: BoundedClient, item: Json, what: str) -> StackView:
    """Of this unit or pool; `what` it is, in words."""
    intent = get_intent(item, what)
    return view_stack(intent, await find_record(client, intent.address))


def get_intent(item: Json, what: str) -> Intent:
    """What was accepted for it; a 404 that says why it has no stack."""
    intent = intent_of(item)
    if intent is None:
        raise not_found("stack_not_found", f"the {what} {item['metadata']['name']!r} {_why_without(item)}")
    return intent


def _why_without(item: Json) -> str:
    annotations = annotations_of(item)
    if owner := annotations.get(names.ANNOTATION_OWNER_STACK):
        return f"belongs to the Pulumi stack {owner}, and has none of its own"
    if names.ANNOTATION_ACCEPTED_SPEC not in annotations:
        return "has no stack: it was not accepted over this API, but made by other means, such as kubectl"
    return f"has no stack: its annotation {names.ANNOTATION_ACCEPTED_SPEC} cannot be read; its Events say why"


class RecordingWaits:
    def __init__(self, client: BoundedClient) -> None:
        self._client = client
        self._polls = SharedTasks[tuple[str, str], bool]()
        self._waiting = 0

    async def wait(self, item: Json) -> bool:
        """Whether its stack says what was accepted: as soon as it does, or once the time is over. Whoever joins others
        waits no longer than they do."""
        intent = intent_of(item)
        if intent is None or self._waiting >= WAITING_LIMIT:
            return intent is not None and await self._look(intent)
        self._waiting += 1
        try:
            return await self._polls.join((intent.uid, intent.accepted_hash), lambda: self._poll(intent))
        finally:
            self._waiting -= 1

    async def _poll(self, intent: Intent) -> bool:
        pause = FIRST_PAUSE_SECONDS
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not await self._look(intent):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        except TimeoutError:
            return False
        return True

    async def _look(self, intent: Intent) -> bool:
        try:
            return is_recorded(await find_record(self._client, intent.address), intent)
        except KubeError:
            # The unit is accepted, whatever is away by now; that is what the caller has to be told.
            return False
