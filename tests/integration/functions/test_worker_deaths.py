"""Worker processes that die, are told to end, or lose NATS: every accepted call comes to exactly one end."""

import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_platform.domain.invocations import InvocationState
from gpu_platform.nats.subjects import QUEUE, consumer_name
from tests.support.fault_report import FaultReport
from tests.support.function_workers import POISON
from tests.support.waiting import eventually
from tests.support.worker_ground import ACK_SECONDS, FUNCTION, WorkerGround, open_worker_ground, says_queue_away

INNOCENT = ("innocent-1", "innocent-2", "innocent-3")


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[WorkerGround]:
    async with open_worker_ground(tmp_path) as ground:
        yield ground


async def test_an_answer_is_written_once_nats_is_back(ground: WorkerGround) -> None:
    async with ground.gated.framework(), ground.gated.sidecar() as sidecar:
        gate = await ground.send_gated("paid-for")
        ground.server.kill()
        gate.touch()
        await says_queue_away(sidecar, invocation_id="paid-for")
        await ground.server.start()
        call = await ground.ends("paid-for")

    assert (call.state, call.attempts) == (InvocationState.SUCCEEDED, 1)


async def test_a_handler_that_dies_is_tried_again_and_at_last_a_dead_letter(ground: WorkerGround) -> None:
    place = replace(ground.place, attempts=2)
    async with place.framework(), place.sidecar():
        # One after the other: a handler that dies takes along what else it works on.
        await ground.send("twice", crash=1)
        twice = await ground.ends("twice")
        await ground.send("poison", crash=2)
        poison = await ground.ends("poison")
        await eventually(ground.is_empty)

    assert (twice.state, twice.attempts) == (InvocationState.SUCCEEDED, 2)
    assert (poison.state, poison.attempts) == (InvocationState.DEAD_LETTERED, 2)


async def test_a_worker_that_is_killed_in_the_middle_leaves_its_calls_to_the_next_one(ground: WorkerGround) -> None:
    place = ground.gated
    async with place.framework("first"), place.framework("second"):
        async with place.sidecar("first") as first:
            gate = await ground.send_gated("left")
            first.signal(signal.SIGKILL)
            assert await first.ends() == -signal.SIGKILL
        gate.touch()
        async with place.sidecar("second"):
            call = await ground.ends("left")

    # It ran in a worker that could run others beside it, so the first attempt does not count.
    assert (call.state, call.worker, call.attempts) == (InvocationState.SUCCEEDED, "second", 1)
    # The queue gives it away again after this time.
    assert (await ground.js.consumer_info(QUEUE, consumer_name("acme", FUNCTION))).config.ack_wait == ACK_SECONDS


async def test_a_worker_that_is_killed_at_the_last_attempt_leaves_a_dead_letter(ground: WorkerGround) -> None:
    """It ran alone: nothing else can have ended the worker."""
    last = replace(ground.place, attempts=1, concurrency=1)
    async with last.framework("first"), last.framework("second"):
        async with last.sidecar("first") as first:
            await ground.send("last", delay=600)
            await ground.runs("last")
            first.signal(signal.SIGKILL)
            await first.ends()
        async with last.sidecar("second"):
            call = await ground.ends("last")

    assert (call.state, call.attempts, call.worker) == (InvocationState.DEAD_LETTERED, 1, "first")


async def send_poisoned(ground: WorkerGround) -> None:
    """One poison call and three innocent ones, which run beside each other."""
    names = ("poison", *INNOCENT)
    for name in names:
        await ground.send(name, place=str(ground.place.root), poison=name == "poison")

    async def run_together() -> bool:
        return all((ground.place.root / f"{name}.0").exists() for name in names)

    await eventually(run_together)


@pytest.mark.parametrize("dies", ["framework", "worker"])
async def test_only_the_call_that_ends_its_process_alone_pays_for_it(
    ground: WorkerGround, faults: FaultReport, dies: str
) -> None:
    place = replace(ground.place, attempts=1, concurrency=4, handler=POISON)
    async with place.sidecar("first") as first:
        async with place.framework("first"):
            await send_poisoned(ground)
            if dies == "worker":
                first.signal(signal.SIGKILL)
                assert await first.ends() == -signal.SIGKILL
            else:
                (ground.place.root / "go").touch()
                await first.says("call.no_answer")
                calls = [await ground.ends(name) for name in ("poison", *INNOCENT)]
        if dies == "worker":
            async with place.worker("second"):
                calls = [await ground.ends(name) for name in ("poison", *INNOCENT)]
    faults.hit(f"the death of a {dies} with four calls")

    poison, *innocent = calls
    assert (poison.state, poison.attempts) == (InvocationState.DEAD_LETTERED, 1)
    assert [(call.state, call.attempts) for call in innocent] == [(InvocationState.SUCCEEDED, 1)] * len(INNOCENT)
    # Suspects run one at a time.
    assert [call.result.body for call in innocent if call.result] == [{"beside": []}] * len(INNOCENT)
    runs = {name: len(list(ground.place.root.glob(f"{name}.[0-9]"))) for name in ("poison", *INNOCENT)}
    assert runs == dict.fromkeys(("poison", *INNOCENT), 2)


async def test_a_worker_that_is_told_to_end_finishes_what_it_has(ground: WorkerGround) -> None:
    async with ground.gated.framework(), ground.gated.sidecar() as sidecar:
        gate = await ground.send_gated("under-way")
        sidecar.signal(signal.SIGTERM)
        await ground.send("late", until=str(gate))
        gate.touch()
        assert await sidecar.ends() == 0

        assert (await ground.look("under-way")).call.state is InvocationState.SUCCEEDED
        # The queue may have given it away already: then it is run, too.
        assert (await ground.look("late")).call.state in (InvocationState.QUEUED, InvocationState.SUCCEEDED)


async def test_calls_survive_the_death_of_everything(ground: WorkerGround, faults: FaultReport) -> None:
    """Bounded chaos: the server, sidecars and frameworks die in turn while thirty calls are under way."""
    names = [f"call-{number}" for number in range(30)]
    for name in names:
        await ground.send(name, delay=0.1)
    for turn in range(2):
        async with ground.framework(), ground.sidecar() as sidecar:
            await ground.ends(names[5 * (turn + 1)])
            if turn % 2:
                ground.server.kill()
                await ground.server.start()
            sidecar.signal(signal.SIGKILL)
            assert await sidecar.ends() == -signal.SIGKILL
            faults.hit("the death of a worker")
    async with ground.framework(), ground.sidecar():
        calls = [await ground.ends(name) for name in names]

    assert {call.state for call in calls} <= {InvocationState.SUCCEEDED, InvocationState.DEAD_LETTERED}
    assert sum(call.state is InvocationState.SUCCEEDED for call in calls) > len(calls) / 2
