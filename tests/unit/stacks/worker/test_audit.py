"""Every stack is compared with the cluster once per period, and recorded again when it says something else."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import cast

import pytest

from gpu_platform.controller.loop import Done, RequeueAfter, Result
from gpu_platform.domain.stack_plan import Records
from gpu_platform.domain.stacks import StackAddress, StackKind
from stacks.runner import Fault, RunnerStoppedError, StackFailedError, StackRunner
from stacks.worker.audit import AuditController, first_delay
from stacks.worker.metrics import WorkerMetrics
from stacks.worker.observe import StackWorld, key_of
from tests.unit.domain import test_stack_plan as plan

PERIOD = timedelta(seconds=600)
RECORDED = Records(plan.unit(), plan.stack())
UNSETTLED = {
    "not recorded": Records(plan.unit(), None),
    "begun": Records(plan.unit(), plan.stack(recorded=None)),
    "changed since": Records(plan.unit(), plan.stack(recorded=plan.OTHER_SPEC)),
    "edited": Records(plan.unit(spec=plan.OTHER_SPEC), plan.stack()),
    "being deleted": Records(plan.unit(going=True), plan.stack()),
    "gone": Records(None, plan.stack()),
    "gone for good": Records(None, None),
}


class _World:
    def __init__(self, records: Records) -> None:
        self.records = records

    def observe(self, address: StackAddress) -> Records:
        assert address == plan.ADDRESS
        return self.records


class _Runner:
    def __init__(self, audit: Callable[[], bool]) -> None:
        self._audit = audit
        self.asked = 0

    def audit(self, address: StackAddress) -> bool:
        assert address == plan.ADDRESS
        self.asked += 1
        return self._audit()


class Auditor:
    """The controller, on a clock that a test sets; it has seen the stack, and the first audit is due."""

    def __init__(self, audit: Callable[[], bool], records: Records = RECORDED) -> None:
        self.world = _World(records)
        self.runner = _Runner(audit)
        self.doubted: list[StackAddress] = []
        self.metrics = WorkerMetrics()
        self.now = 1_000.0

    async def run(self, *moments: float) -> list[Result]:
        with ThreadPoolExecutor(1) as executor:
            controller = AuditController(
                cast(StackWorld, self.world),
                cast(StackRunner, self.runner),
                executor,
                PERIOD,
                self.doubted.append,
                self.metrics,
                lambda: self.now,
            )
            results = []
            for moment in moments:
                self.now = 1_000.0 + moment
                results.append(await controller.reconcile(*key_of(plan.ADDRESS)))
            return results

    def counted(self, result: str) -> float:
        return self.metrics.registry.get_sample_value("gpu_platform_stack_worker_audits_total", {"result": result}) or 0


FIRST = first_delay(plan.ADDRESS, PERIOD.total_seconds())


async def test_a_settled_stack_is_audited_once_per_period() -> None:
    auditor = Auditor(lambda: True)

    early, first, soon, second = await auditor.run(0, FIRST, FIRST + 1, FIRST + 600)

    assert isinstance(early, RequeueAfter)
    assert early.delay.total_seconds() == pytest.approx(FIRST, abs=0.001)
    assert first == second == RequeueAfter(PERIOD, "looks again and again")
    assert isinstance(soon, RequeueAfter)
    assert auditor.runner.asked == auditor.counted("same") == 2
    assert auditor.doubted == []


@pytest.mark.parametrize("records", UNSETTLED.values(), ids=UNSETTLED)
async def test_a_stack_that_is_about_to_change_is_left_alone(records: Records) -> None:
    auditor = Auditor(lambda: False, records)

    assert await auditor.run(0, 6_000) == [Done(), Done()]
    assert auditor.runner.asked == 0


async def test_a_stack_that_says_something_else_is_doubted() -> None:
    auditor = Auditor(lambda: False)

    await auditor.run(0, FIRST)

    assert auditor.doubted == [plan.ADDRESS]
    assert auditor.counted("different") == 1


async def test_what_changed_during_its_audit_is_not_doubted() -> None:
    def change() -> bool:
        auditor.world.records = UNSETTLED["changed since"]
        return False

    auditor = Auditor(change)
    await auditor.run(0, FIRST)

    assert auditor.doubted == []


@pytest.mark.parametrize("error", [StackFailedError(Fault.BACKEND, "away"), RunnerStoppedError()])
async def test_an_audit_that_cannot_look_proves_nothing_and_comes_again(error: Exception) -> None:
    def fail() -> bool:
        raise error

    auditor = Auditor(fail)
    results = await auditor.run(0, FIRST)

    assert results[-1] == RequeueAfter(PERIOD, "looks again and again")
    assert auditor.doubted == []
    assert auditor.counted("failed") == isinstance(error, StackFailedError)


def test_first_audits_are_spread_over_the_period() -> None:
    delays = [first_delay(StackAddress(StackKind.GPU_UNIT, "acme", f"unit-{number}"), 100.0) for number in range(1_000)]

    assert all(0 <= delay < 100 for delay in delays)
    assert max(sum(tenth * 10 <= delay < tenth * 10 + 10 for delay in delays) for tenth in range(10)) < 150
