"""Who may work on a stack: one at a time, and the next one as soon as the last is provably gone or its time is over."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.kube import ConflictError, KubeClient, UnreachableError
from gpu_platform.store.stack_leases import Holder, is_dead, parse_holder
from stacks.worker.lease import Terms, end_processes_of, renewed

OWN = Holder(socket.gethostname(), os.getpid(), "own")
ELSEWHERE = Holder("elsewhere", 7, "theirs").identity
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def lease(holder: str | None, version: str = "1") -> Json:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 30, "leaseTransitions": 4}
    metadata = {"name": "gpu-unit.default.a", "namespace": SYSTEM_NAMESPACE, "resourceVersion": version}
    return {"metadata": metadata, "spec": spec}


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_lease_that_nobody_holds_is_free_at_once() -> None:
    terms = Terms(OWN, Clock())
    assert terms.seconds_left(None) == 0
    assert terms.seconds_left(lease(None)) == 0
    assert terms.seconds_left(lease(OWN.identity)) == 0


def test_a_holder_elsewhere_is_waited_for_as_long_as_its_lease_does_not_change() -> None:
    clock = Clock()
    terms = Terms(OWN, clock)
    assert terms.seconds_left(lease(ELSEWHERE)) == 30
    clock.time += 29
    assert terms.seconds_left(lease(ELSEWHERE)) == 1
    assert terms.seconds_left(lease(ELSEWHERE, version="2")) == 30
    clock.time += 31
    assert terms.seconds_left(lease(ELSEWHERE, version="2")) == 0
    terms.forget("gpu-unit.default.a")
    assert terms.seconds_left(lease(ELSEWHERE, version="2")) == 30


def test_a_process_of_this_host_that_is_no_more_is_not_waited_for() -> None:
    gone = Holder(OWN.host, dead_pid(), "gone").identity
    assert Terms(OWN, Clock()).seconds_left(lease(gone)) == 0


@pytest.mark.parametrize(
    ("holder", "dead"),
    [
        ("", False),
        ("not a holder", False),
        (ELSEWHERE, False),
        (OWN.identity, False),
        (Holder(OWN.host, OWN.pid, "an earlier one").identity, True),
        (Holder(OWN.host, os.getppid(), "alive").identity, False),
    ],
    ids=["none", "not a holder", "on another host", "this process", "an earlier process", "a live process"],
)
def test_a_holder_is_dead_only_on_proof(holder: str, dead: bool) -> None:
    assert is_dead(holder, OWN) is dead


def test_a_holder_is_read_as_it_was_written() -> None:
    assert parse_holder(OWN.identity) == OWN


HOLDER = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
children = [subprocess.Popen([*sleep, stack]) for stack in ("default.a", "default.ab")]
print(*(child.poll() for child in children), flush=True)
print(children[0].wait(), children[1].poll(), flush=True)
children[1].kill()
"""


def test_only_the_stale_holders_own_process_for_this_stack_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "None None\n"
        assert end_processes_of(Holder("elsewhere", holder.pid, "x").identity, "default.a") == 0
        assert end_processes_of(Holder(OWN.host, holder.pid, "x").identity, "default.a") == 1
        assert holder.stdout.readline() == f"{-signal.SIGKILL} None\n"


def test_what_runs_for_this_very_process_is_not_ended_with_an_earlier_one_of_its_pid() -> None:
    """As in a container that was restarted, while a preview of the same stack runs."""
    with subprocess.Popen([sys.executable, "-c", "input()", "default.a"], stdin=subprocess.PIPE) as preview:
        assert end_processes_of(Holder(OWN.host, OWN.pid, "earlier").identity, "default.a") == 0
        preview.communicate(b"\n")
    assert preview.returncode == 0


class Leases(KubeClient):
    """Answers renewals as it was told to."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.renewals = 0

    async def replace(self, path: str, body: Json, *_: Any, **__: Any) -> Json:  # noqa: ARG002 - as the real one
        self.renewals += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        return body


async def hold(leases: Leases, seconds: float, life: float = 0.06) -> tuple[bool, list[str]]:
    lost: list[str] = []
    async with renewed(leases, lease(OWN.identity), life, lambda: NOW, lambda: lost.append("lost")) as held:
        await asyncio.sleep(seconds)
    return held.is_lost, lost


async def test_a_lease_is_renewed_while_the_work_goes_on() -> None:
    leases = Leases()
    assert await hold(leases, 0.5) == (False, [])
    assert leases.renewals >= 5


async def test_a_superseded_holder_is_told_once() -> None:
    assert await hold(Leases(None, ConflictError(409, "Conflict", "changed")), 0.3) == (True, ["lost"])


async def test_a_holder_that_cannot_renew_gives_up_when_its_time_is_over() -> None:
    away = UnreachableError(0, "Unreachable", "away")
    assert await hold(Leases(*[away] * 100), 0.5) == (True, ["lost"])
    assert await hold(Leases(away), 0.6, life=0.9) == (False, [])
