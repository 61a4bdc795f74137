"""Leader election over a Lease: one at a time, by each process's own clock."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gpu_platform.controller.leader_election import LeaderElector, Leadership, NotLeaderError, always_leading
from gpu_platform.kube import UnreachableError
from tests.support.scripted_kube import Store, StoredObjects
from tests.support.virtual_time import now, run_in_virtual_time

PATH = "/apis/coordination.k8s.io/v1/namespaces/system/leases/daemon"
DURATION, RENEW, RETRY = 15.0, 10.0, 2.0
STEP = 0.05


class Candidate:
    """A process that would lead. It notes its terms: epoch, begin, end."""

    def __init__(self, store: Store, identity: str) -> None:
        self.client = StoredObjects(store)
        self.elector = LeaderElector(self.client, "system", "daemon", identity=identity, clock=now)
        self.terms: list[tuple[int, float, float]] = []
        self.work_ends = asyncio.Event()
        self.error: Exception | None = None
        self.task = asyncio.create_task(self.elector.run(self._lead))

    @property
    def leads(self) -> bool:
        return self.elector.leadership.is_leader

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    def cut_off(self) -> None:
        """Every request fails from now on. A killed process looks the same from outside."""

        def refuse(_method: str, _path: str) -> None:
            raise UnreachableError(0, "Unreachable", "cut off")

        self.client.fault = refuse

    def heal(self) -> None:
        self.client.fault = lambda _method, _path: None

    async def _lead(self, leadership: Leadership) -> None:
        self.terms.append((leadership.epoch, now(), float("inf")))
        try:
            await self.work_ends.wait()
            if self.error:
                raise self.error
        finally:
            self.terms[-1] = (*self.terms[-1][:2], now())


def lease_in(store: Store) -> dict[str, Any]:
    spec: dict[str, Any] = store.objects[PATH]["spec"]
    return spec


async def wait_until(condition: Callable[[], bool], within: float = 60) -> float:
    """Virtual seconds until it holds."""
    started_at = now()
    while not condition():
        assert now() - started_at < within
        await asyncio.sleep(STEP)
    return now() - started_at


async def start_two(store: Store) -> tuple[Candidate, Candidate]:
    """The first one leads."""
    first = Candidate(store, "first")
    await wait_until(lambda: first.leads)
    second = Candidate(store, "second")
    await asyncio.sleep(5.3)
    return first, second


def test_the_first_candidate_leads_and_the_second_waits() -> None:
    async def main() -> None:
        store = Store()
        first, second = await start_two(store)
        await asyncio.sleep(120)

        assert (first.leads, second.leads) == (True, False)
        assert lease_in(store)["holderIdentity"] == "first"
        assert lease_in(store)["leaseDurationSeconds"] == DURATION
        assert first.elector.leadership.epoch == lease_in(store)["leaseTransitions"] == 1
        await first.stop()
        await second.stop()

    run_in_virtual_time(main())


def test_many_candidates_at_the_same_moment_make_one_leader() -> None:
    async def main() -> None:
        store = Store()
        candidates = [Candidate(store, str(number)) for number in range(8)]
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert sum(each.leads for each in candidates) == 1
        for each in candidates:
            await each.stop()

    run_in_virtual_time(main())


def test_a_leader_that_stops_gives_the_lease_back_and_the_next_need_not_wait_for_its_end() -> None:
    async def main() -> None:
        store = Store()
        first, second = await start_two(store)
        await first.stop()

        assert lease_in(store)["holderIdentity"] is None
        assert await wait_until(lambda: second.leads) <= RETRY * 1.1 + STEP
        assert second.elector.leadership.epoch == 2
        await second.stop()

    run_in_virtual_time(main())


def test_a_leader_whose_work_ends_gives_the_lease_back() -> None:
    async def main() -> None:
        store = Store()
        only = Candidate(store, "only")
        only.work_ends.set()
        await only.task

        assert lease_in(store)["holderIdentity"] is None
        assert not only.leads

    run_in_virtual_time(main())


def test_a_failure_of_the_work_is_raised_after_the_lease_is_given_back() -> None:
    async def main() -> None:
        store = Store()
        only = Candidate(store, "only")
        only.work_ends.set()
        only.error = ValueError("a defect")
        with pytest.raises(ValueError, match="a defect"):
            await only.task
        assert lease_in(store)["holderIdentity"] is None

    run_in_virtual_time(main())


@pytest.mark.parametrize("killed_after", [0.0, 0.5, 1.0, 1.5, 1.9])
def test_a_killed_leader_is_followed_within_20_seconds_and_not_before_its_term_ended(killed_after: float) -> None:
    async def main() -> None:
        first, second = await start_two(Store())
        await asyncio.sleep(killed_after)
        killed_at = now()
        first.cut_off()
        await wait_until(lambda: not first.leads)
        stopped_at = now()
        await wait_until(lambda: second.leads)

        assert stopped_at - killed_at <= RENEW
        assert DURATION - RETRY <= now() - killed_at <= DURATION + RETRY * 1.1
        assert now() - stopped_at >= DURATION - RENEW - RETRY
        assert first.terms[0][2] <= stopped_at + STEP, "the work was cancelled at once"
        await first.stop()
        await second.stop()

    run_in_virtual_time(main())


def test_a_leader_that_was_cut_off_and_came_back_in_time_goes_on() -> None:
    async def main() -> None:
        first, second = await start_two(Store())
        first.cut_off()
        await asyncio.sleep(RENEW - 2 * RETRY - 0.1)
        first.heal()
        await asyncio.sleep(60)

        assert (first.leads, second.leads) == (True, False)
        assert len(first.terms) == 1
        await first.stop()
        await second.stop()

    run_in_virtual_time(main())


def test_a_leader_that_lost_waits_for_another_term() -> None:
    async def main() -> None:
        first, second = await start_two(Store())
        first.cut_off()
        await wait_until(lambda: second.leads)
        first.heal()
        await asyncio.sleep(60)
        assert (first.leads, second.leads) == (False, True)

        await second.stop()
        await wait_until(lambda: first.leads)
        assert [epoch for epoch, _, _ in first.terms] == [1, 3]
        await first.stop()

    run_in_virtual_time(main())


def test_a_lost_lease_that_nobody_took_is_a_new_term() -> None:
    async def main() -> None:
        only = Candidate(Store(), "only")
        await wait_until(lambda: only.leads)
        only.cut_off()
        await wait_until(lambda: not only.leads)
        only.heal()

        assert await wait_until(lambda: only.leads) <= RETRY * 1.1 + STEP
        assert [epoch for epoch, _, _ in only.terms] == [1, 2]
        await only.stop()

    run_in_virtual_time(main())


def test_an_acknowledgement_that_was_lost_does_not_cost_the_term() -> None:
    async def main() -> None:
        store = Store()
        only = Candidate(store, "only")
        await wait_until(lambda: only.leads)
        # As after a renewal that arrived, but whose answer did not.
        store.objects[PATH]["metadata"]["resourceVersion"] = "another"
        await asyncio.sleep(30)

        assert only.leads
        assert len(only.terms) == 1
        await only.stop()

    run_in_virtual_time(main())


def test_a_lease_taken_by_somebody_ends_the_term_at_the_next_renewal() -> None:
    async def main() -> None:
        store = Store()
        only = Candidate(store, "only")
        await wait_until(lambda: only.leads)
        lease = store.objects[PATH]
        lease["metadata"]["resourceVersion"] = "another"
        lease["spec"] |= {"holderIdentity": "kubectl", "renewTime": "changed"}

        assert await wait_until(lambda: not only.leads) <= RETRY + STEP
        # Nobody renews that one, so it runs out.
        assert DURATION - 1 <= await wait_until(lambda: only.leads) <= DURATION + RETRY
        await only.stop()

    run_in_virtual_time(main())


def test_a_lease_that_cannot_be_written_is_not_asked_for_without_a_pause() -> None:
    async def main() -> None:
        store = Store()
        only = Candidate(store, "only")
        only.cut_off()
        await asyncio.sleep(60)
        assert 60 / RETRY / 1.2 <= len(only.client.requests) <= 60 / RETRY + 2
        await only.stop()

    run_in_virtual_time(main())


class Hands:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_the_deadline_is_judged_by_the_clock_at_each_check() -> None:
    clock = Hands()
    leadership = Leadership(clock)
    with pytest.raises(NotLeaderError):
        leadership.check()
    leadership.begin(epoch=3, deadline=10.0)
    leadership.check()
    assert (leadership.is_leader, leadership.epoch, leadership.seconds_left) == (True, 3, 10.0)

    clock.seconds = 10.1

    assert (leadership.is_leader, leadership.seconds_left) == (False, 0.0)
    with pytest.raises(NotLeaderError):
        leadership.check()


def test_a_renewal_that_comes_too_late_does_not_revive_the_term() -> None:
    clock = Hands()
    leadership = Leadership(clock)
    leadership.begin(epoch=1, deadline=10.0)
    clock.seconds = 30.0

    leadership.extend(40.0)

    assert not leadership.is_leader


def test_without_election_a_process_always_leads() -> None:
    leadership = always_leading()

    leadership.check()
    assert leadership.seconds_left == float("inf")
