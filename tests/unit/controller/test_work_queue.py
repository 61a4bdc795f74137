"""The work queue: no key is lost, none has two workers, none waits twice."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_platform.clock import Backoff
from gpu_platform.controller.work_queue import WorkQueue
from tests.support.virtual_time import now, run_in_virtual_time

PLAIN = Backoff(first=0.05, longest=60.0, chance=lambda: 0.0)


async def take_all(queue: WorkQueue[str]) -> list[str]:
    """Every key that is due now."""
    taken = []
    while len(queue):
        taken.append(await queue.get())
        queue.done(taken[-1])
    return taken


def test_a_key_waits_once_however_often_it_is_added() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        for key in ("a", "b", "a", "a"):
            queue.add(key)

        assert await take_all(queue) == ["a", "b"]

    run_in_virtual_time(main())


def test_a_key_that_is_added_during_its_pass_is_taken_again_after_it() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        queue.add("a")
        queue.add("b")
        assert await queue.get() == "b", "another worker does not get the key that is being worked on"
        queue.done(key)

        assert await take_all(queue) == ["a"]

    run_in_virtual_time(main())


def test_of_several_appointments_the_earliest_counts() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        for seconds in (30, 10, 20):
            queue.add_after("a", timedelta(seconds=seconds))
        await queue.get()

        assert now() == pytest.approx(10)
        queue.done("a")
        await asyncio.sleep(100)
        assert len(queue) == 0

    run_in_virtual_time(main())


def test_a_pass_makes_earlier_appointments_void() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add_after("a", timedelta(seconds=30))
        queue.add("a")
        queue.done(await queue.get())
        await asyncio.sleep(100)

        assert len(queue) == 0

    run_in_virtual_time(main())


def test_an_appointment_made_during_the_pass_is_kept() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add("a")
        key = await queue.get()
        queue.add_after(key, timedelta(seconds=7))
        queue.done(key)
        await queue.get()

        assert now() == pytest.approx(7)

    run_in_virtual_time(main())


def test_failures_wait_longer_and_longer_until_one_success() -> None:
    async def main() -> None:
        queue = WorkQueue[str](PLAIN)
        queue.add("a")
        waits = []
        for _ in range(13):
            key = await queue.get()
            failed_at = now()
            queue.add_failed(key)
            queue.done(key)
            key = await queue.get()
            waits.append(round(now() - failed_at, 3))
            queue.done(key)
            queue.add(key)
        queue.forget("a")
        queue.add_failed("a")
        await queue.get()
        restarted_at = now()
        queue.done("a")
        queue.add_failed("b")
        await queue.get()

        assert waits[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]
        assert waits[-2:] == [30.0, 30.0]
        assert now() - restarted_at == pytest.approx(0.05), "another key's failures do not count"

    run_in_virtual_time(main())


def test_nothing_is_left_in_the_event_loop_after_closing() -> None:
    async def main() -> None:
        queue = WorkQueue[str]()
        queue.add_after("a", timedelta(hours=1))
        queue.close()
        await asyncio.sleep(7200)
        assert len(queue) == 0

    run_in_virtual_time(main())


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "after", "fail"]), st.sampled_from("abcd"), st.integers(0, 20), st.integers(0, 10)
    ),
    max_size=40,
)


@settings(deadline=None)
@given(ACTIONS, st.integers(1, 4))
def test_every_added_key_is_taken_afterwards_by_one_worker_at_a_time(
    actions: list[tuple[str, str, int, int]], workers: int
) -> None:
    """Actions come at any pace, passes take any time: after each addition a pass of that key begins."""
    asked: dict[str, float] = {}
    began: dict[str, float] = {}
    active: set[str] = set()

    async def work(queue: WorkQueue[str]) -> None:
        while True:
            key = await queue.get()
            assert key not in active
            active.add(key)
            began[key] = now()
            await asyncio.sleep(3)
            active.discard(key)
            queue.done(key)

    async def main() -> None:
        queue = WorkQueue[str]()
        tasks = [asyncio.create_task(work(queue)) for _ in range(workers)]
        for action, key, delay, pause in actions:
            asked[key] = now()
            match action:
                case "add":
                    queue.add(key)
                case "after":
                    queue.add_after(key, timedelta(seconds=delay))
                case _:
                    queue.add_failed(key)
            await asyncio.sleep(pause / 4)
        await asyncio.sleep(300)
        assert len(queue) == 0
        for task in tasks:
            assert not task.done() or task.exception() is None
            task.cancel()
        await asyncio.wait(tasks)

    run_in_virtual_time(main())
    assert {key for key in asked if began.get(key, -1.0) < asked[key]} == set()


def lane_of(key: str) -> str:
    return key[0]


def test_lanes_take_turns_and_each_keeps_its_order() -> None:
    async def main() -> None:
        queue = WorkQueue[str](lane_of=lane_of)
        for key in ("a1", "a2", "a3", "a4", "b1", "c1", "b2"):
            queue.add(key)

        assert await take_all(queue) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]

    run_in_virtual_time(main())


def test_a_key_of_another_lane_waits_for_one_key_of_a_lane_that_has_many() -> None:
    async def main() -> None:
        queue = WorkQueue[str](lane_of=lane_of)
        for number in range(300):
            queue.add(f"a{number}")
        queue.done(await queue.get())
        queue.add("b")

        assert [await queue.get(), await queue.get()] == ["a1", "b"]
        assert len(queue) == 298

    run_in_virtual_time(main())


@given(st.lists(st.text("abc", min_size=1, max_size=3), max_size=40))
def test_lanes_lose_no_key_and_are_served_equally(keys: list[str]) -> None:
    async def main() -> list[str]:
        queue = WorkQueue[str](lane_of=lane_of)
        for key in keys:
            queue.add(key)
        return await take_all(queue)

    taken = run_in_virtual_time(main())
    assert sorted(taken) == sorted(set(keys))
    for lane in "abc":
        # The n-th key of a lane is taken before the (n+1)-th of any other.
        places = {each: [place for place, key in enumerate(taken) if key[0] == each] for each in "abc"}
        for other in "abc":
            for first, second in zip(places[lane], places[other][1:], strict=False):
                assert first < second
