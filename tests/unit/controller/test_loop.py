"""The controller loop: what becomes a pass, what a pass's end leads to, and how a loop ends."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gpu_platform.controller.loop import PAUSE_SECONDS, ControllerLoop, Done, Key, RequeueAfter, Result, Trigger
from gpu_platform.controller.metrics import Metrics
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import AlreadyExistsError, ConflictError, KubeError, NotFoundError, UnreachableError
from gpu_platform.kube.fencing import NotLeaderError
from gpu_platform.kube.informer import ObjectCache, WatchEvent
from gpu_platform.kube.paths import CONFIG_MAPS
from tests.support.scripted_kube import ScriptedWatchClient, make_object
from tests.support.virtual_time import now, run_in_virtual_time

Answer = Callable[[Key], Result]


class Scripted:
    """A controller whose passes take a second and end as the test says."""

    name = "scripted"

    def __init__(self) -> None:
        self.answer: Answer = lambda _: Done()
        self.passes: list[tuple[float, str]] = []
        self.active: Counter[str] = Counter()

    async def reconcile(self, namespace: str, name: str) -> Result:
        self.passes.append((now(), name))
        self.active[name] += 1
        assert self.active[name] == 1
        try:
            await asyncio.sleep(1)
            return self.answer((namespace, name))
        finally:
            self.active[name] -= 1


def owner_of(item: Json) -> Iterable[Key]:
    yield item["metadata"]["namespace"], item.get("data", {}).get("owner", item["metadata"]["name"])


class Rig:
    def __init__(self, workers: int = 2) -> None:
        self.cache = ObjectCache(ScriptedWatchClient([], []), CONFIG_MAPS)
        self.controller = Scripted()
        self.metrics = Metrics("gpu_platform_reconciler")
        self.loop = ControllerLoop(
            self.controller, [Trigger(self.cache, owner_of)], workers=workers, metrics=self.metrics
        )

    def relist(self, *items: Json) -> None:
        for item in items:
            self.cache._take(WatchEvent("ADDED", item, listed=True))
        self.cache._take(WatchEvent("SYNCED", {}))

    def see(self, item: Json) -> None:
        self.cache._take(WatchEvent("MODIFIED", item))

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.controller.passes]

    def count(self, result: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "gpu_platform_reconciler_passes_total", {"controller": "scripted", "result": result}
        )
        return value or 0.0


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(rig.loop.run())
    yield task
    task.cancel()
    await asyncio.wait({task})


def test_nothing_is_done_before_everything_is_listed() -> None:
    async def main() -> None:
        rig = Rig()
        async with running(rig):
            rig.cache._take(WatchEvent("ADDED", make_object("one", "1"), listed=True))
            await asyncio.sleep(60)
            assert rig.names == []
            rig.cache._take(WatchEvent("SYNCED", {}))
            await asyncio.sleep(2)
            assert rig.names == ["one"]

    run_in_virtual_time(main())


def test_a_change_concerns_the_old_owner_and_the_new_one() -> None:
    async def main() -> None:
        rig = Rig()
        rig.relist(make_object("child", "1", data={"owner": "first"}))
        async with running(rig):
            await asyncio.sleep(5)
            rig.see(make_object("child", "2", data={"owner": "second"}))
            await asyncio.sleep(5)
            assert rig.names[0] == "first"
            assert sorted(rig.names[1:]) == ["first", "second"]

    run_in_virtual_time(main())


def test_a_change_and_a_deletion_bring_a_pass_at_once() -> None:
    """Drift is put right within a second: nothing of it is spent waiting."""

    async def main() -> None:
        rig = Rig()
        rig.relist(make_object("edited", "1"), make_object("deleted", "1"))
        async with running(rig):
            await asyncio.sleep(5)
            rig.controller.passes.clear()
            rig.see(make_object("edited", "2"))
            rig.cache._take(WatchEvent("DELETED", make_object("deleted", "2")))
            await asyncio.sleep(0.001)
            assert sorted(rig.names) == ["deleted", "edited"]

    run_in_virtual_time(main())


def test_a_list_brings_every_object_again_and_what_vanished_too() -> None:
    async def main() -> None:
        rig = Rig()
        rig.relist(make_object("kept", "1"), make_object("gone", "1"))
        async with running(rig):
            await asyncio.sleep(5)
            rig.controller.passes.clear()
            rig.relist(make_object("kept", "1"))
            await asyncio.sleep(5)
            assert sorted(rig.names) == ["gone", "kept"]

    run_in_virtual_time(main())


def test_as_many_passes_at_once_as_there_are_workers_but_one_per_key() -> None:
    async def main() -> None:
        rig = Rig(workers=2)
        rig.relist(*(make_object(name, "1") for name in "abcd"))
        async with running(rig):
            await asyncio.sleep(0.5)
            for version in ("2", "3"):
                rig.see(make_object("a", version))
            await asyncio.sleep(10)
        assert [at for at, _ in rig.controller.passes] == pytest.approx([0, 0, 1, 1, 2])
        assert rig.names == ["a", "b", "c", "d", "a"]

    run_in_virtual_time(main())


def test_a_pass_can_ask_for_another_one_later() -> None:
    async def main() -> None:
        rig = Rig()
        rig.controller.answer = lambda _: RequeueAfter(timedelta(seconds=30), "waiting for the pod")
        rig.relist(make_object("one", "1"))
        async with running(rig):
            await asyncio.sleep(70)
        assert [at for at, _ in rig.controller.passes] == pytest.approx([0, 31, 62])
        assert rig.count("waits") == 3

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("error", "result", "level"),
    [
        (ConflictError(409, "Conflict", ""), "outdated", None),
        (AlreadyExistsError(409, "AlreadyExists", ""), "outdated", None),
        (NotFoundError(404, "NotFound", ""), "outdated", None),
        (UnreachableError(0, "Timeout", ""), "unreachable", logging.WARNING),
        (KubeError(429, "TooManyRequests", ""), "unreachable", logging.WARNING),
        (KubeError(503, "ServiceUnavailable", ""), "unreachable", logging.WARNING),
        (KubeError(422, "Invalid", ""), "failed", logging.ERROR),
        (ValueError("a defect"), "failed", logging.ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failed_pass_is_repeated_with_growing_delays(
    error: Exception, result: str, level: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    failures = 3

    async def main() -> Rig:
        rig = Rig()

        def answer(_: Key) -> Result:
            if len(rig.controller.passes) <= failures:
                raise error
            return Done()

        rig.controller.answer = answer
        rig.relist(make_object("one", "1"))
        async with running(rig):
            await asyncio.sleep(60)
        return rig

    rig = run_in_virtual_time(main())
    assert rig.count(result) == failures
    assert rig.count("done") == 1
    assert {entry.levelno for entry in caplog.records if entry.levelno > logging.DEBUG} == ({level} if level else set())
    assert all(bool(entry.exc_info) == (entry.levelno == logging.ERROR) for entry in caplog.records)


def test_a_refused_write_ends_all_passes_and_the_loop_begins_again_from_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether the Lease is lost is for the elector to say: it cancels the loop then. If it does not, work goes on."""

    async def main() -> None:
        rig = Rig()

        def answer(_: Key) -> Result:
            raise NotLeaderError

        rig.controller.answer = answer
        rig.relist(make_object("one", "1"), make_object("two", "1"), make_object("three", "1"))
        async with running(rig):
            await asyncio.sleep(PAUSE_SECONDS + 0.5)
            assert len(rig.names) == 2, "no worker takes another key"

            rig.controller.answer = lambda _: Done()
            await asyncio.sleep(10)
        assert sorted(rig.names[2:]) == ["one", "three", "two"]

    run_in_virtual_time(main())
    assert [entry for entry in caplog.records if entry.levelno > logging.DEBUG] == []


def test_stopping_lets_passes_end_and_takes_no_more_keys() -> None:
    async def main() -> None:
        rig = Rig(workers=3)
        rig.relist(make_object("one", "1"))
        async with running(rig) as task:
            await asyncio.sleep(0.5)
            rig.loop.stop()
            rig.see(make_object("two", "2"))
            await task
            assert now() == pytest.approx(1.0)
        assert rig.names == ["one"]
        assert rig.count("done") == 1
        await rig.loop.run()
        assert rig.names == ["one"], "stopped for good"

    run_in_virtual_time(main())


def test_an_object_that_cannot_be_read_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        rig = Rig()
        rig.relist()
        async with running(rig):
            await asyncio.sleep(1)
            rig.see(make_object("strange", "1", data=None))
            rig.see(make_object("usual", "2"))
            await asyncio.sleep(5)
            assert rig.names == ["usual"]

    run_in_virtual_time(main())
    assert [entry.message for entry in caplog.records if entry.levelno > logging.DEBUG] == ["change.unreadable"]


def test_the_queue_length_is_a_metric() -> None:
    async def main() -> None:
        rig = Rig(workers=1)

        def length() -> float | None:
            labels = {"controller": "scripted"}
            return rig.metrics.registry.get_sample_value("gpu_platform_reconciler_queue_length", labels)

        assert length() == 0
        rig.relist(*(make_object(name, "1") for name in "abc"))
        async with running(rig):
            await asyncio.sleep(0.5)
            assert length() == 2

    run_in_virtual_time(main())
