"""The report: what is in memory, and one look at the ledger for each object that is gone."""

import asyncio

from gpu_platform.adapters.stack_looks import look
from gpu_platform.domain.stack_plan import Action, plan_stack
from platform_api.bounded_client import BoundedClient
from platform_api.drift.schemas import DriftReport, DriftView, correction_of, view_of
from platform_api.stacks.drift import Drift, DriftTracker

LOOKS_AT_ONCE = 8


async def build_report(client: BoundedClient, tracker: DriftTracker, limit: int) -> DriftReport:
    found = tracker.list_drift()
    turn = asyncio.Semaphore(LOOKS_AT_ONCE)
    # Not a group of tasks, whose errors come as a group too: the first one says why there is no answer.
    views = await asyncio.gather(*(_view(client, tracker, drift, turn) for drift in found[:limit]))
    return DriftReport(
        items=tuple(views),
        total=len(found),
        corrected=tuple(map(correction_of, tracker.list_corrections())),
    )


async def _view(client: BoundedClient, tracker: DriftTracker, drift: Drift, turn: asyncio.Semaphore) -> DriftView:
    record = tracker.find_record(drift.address)
    action = drift.action
    if action is Action.PUT_BACK and record is not None:
        # Only the ledger knows whether somebody asked for its end.
        async with turn:
            action = plan_stack(await look(client, drift.address, record))
    return view_of(drift, action, record)
