"""How a function is said to be, and that it is said at once, whatever is away."""

import asyncio
import itertools
from typing import Any

import pytest

from gpu_platform.api_models.functions import FunctionHealth, HealthState
from gpu_platform.domain.functions import FunctionPhase
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import Role
from gpu_platform.nats.errors import QueueUnavailableError
from gpu_platform.nats.streams import Backlog
from platform_api.auth.keys import Caller
from platform_api.functions.views import FunctionHealthReads, build_health, view_function
from tests.support.builders import make_function
from tests.support.virtual_time import now, run_in_virtual_time

CALLER = Caller(tenant="acme", roles=frozenset({Role.VIEWER}), key_id="k")
COUNT = Backlog(waiting=3, running=1)


def function(phase: str = "Ready", reason: str = "FunctionReady", **fields: Any) -> Json:
    spec = {"minWorkers": fields.pop("minWorkers", 0), "maxWorkers": 5}
    ready = {
        "type": "Ready",
        "status": "True" if phase == "Ready" else "False",
        "reason": reason,
        "message": "in words",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    return make_function(**spec) | {"status": {"phase": phase, "conditions": [ready], **fields}}


class Figures:
    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self.asked: list[tuple[str, str]] = []

    async def count(self, tenant: str, function: str) -> Backlog:
        self.asked.append((tenant, function))
        if self._silent:
            await asyncio.sleep(3_600)
        return COUNT


class Away:
    async def count(self, tenant: str, function: str) -> Backlog:
        raise QueueUnavailableError(f"no answer about {tenant}/{function}")


@pytest.mark.parametrize(
    ("shown", "count", "state"),
    [
        (function(readyWorkers=1, workers=1), COUNT, HealthState.READY),
        (function(readyWorkers=1, workers=3), COUNT, HealthState.READY),
        (function(), COUNT, HealthState.COLD),
        (function("Progressing", workers=1), COUNT, HealthState.STARTING),
        (function("Progressing", minWorkers=1), COUNT, HealthState.STARTING),
        (function("Failed", "NoStock", minWorkers=1), COUNT, HealthState.FAILING),
        (function("Failed", "WorkerFailed", readyWorkers=1, workers=2), COUNT, HealthState.FAILING),
        (function("Failed", "QueueUnavailable"), COUNT, HealthState.QUEUE_UNAVAILABLE),
        (function(readyWorkers=1, workers=1), None, HealthState.QUEUE_UNAVAILABLE),
        (make_function(), COUNT, HealthState.COLD),
    ],
)
def test_the_state_is_one_word(shown: Json, count: Backlog | None, state: HealthState) -> None:
    assert build_health(view_function(shown), count, "").state is state


def test_every_combination_has_a_state_and_only_ready_workers_make_it_ready() -> None:
    phases = (*FunctionPhase, None)
    for phase, minimum, workers, ready, count in itertools.product(phases, (0, 1), (0, 1), (0, 1), (COUNT, None)):
        status = {"workers": workers, "readyWorkers": ready, **({"phase": phase.value} if phase else {})}
        view = view_function(make_function(minWorkers=minimum) | {"status": status})
        health = build_health(view, count, "away")
        assert (health.state is HealthState.READY) <= bool(ready and count)
        assert (health.state is HealthState.COLD) <= (not minimum and not workers)
        assert (health.waiting is None) is (count is None)


async def test_it_says_why_and_how_many_calls_there_are() -> None:
    figures = Figures()
    health = await FunctionHealthReads(figures.count).read(CALLER, function("Failed", "NoStock"))
    assert (health.state, health.reason, health.message) == (HealthState.FAILING, "NoStock", "in words")
    assert (health.waiting, health.running) == (3, 1)
    assert figures.asked == [("acme", "words")]


async def test_without_a_queue_it_says_so_and_what_to_do() -> None:
    health = await FunctionHealthReads(None).read(CALLER, function(readyWorkers=2, workers=2))
    assert (health.state, health.reason, health.ready_workers) == (
        HealthState.QUEUE_UNAVAILABLE,
        "QueueUnavailable",
        2,
    )
    assert "natsURL" in (health.message or "")


@pytest.mark.parametrize("figures", [Away(), Figures(silent=True)])
def test_a_queue_that_does_not_answer_is_not_waited_for(figures: Any) -> None:
    async def read() -> tuple[FunctionHealth, float]:
        return await FunctionHealthReads(figures.count).read(CALLER, function(readyWorkers=1, workers=1)), now()

    health, seconds = run_in_virtual_time(read())

    assert seconds < 2
    assert (health.state, health.waiting) == (HealthState.QUEUE_UNAVAILABLE, None)
    assert "NATS does not answer" in (health.message or "")
