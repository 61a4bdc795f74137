from dataclasses import replace
from typing import Any

import pytest

from gpu_platform.devcluster.hostnode.plan import (
    Container,
    Ending,
    Running,
    Terminated,
    Waiting,
    after_exit,
    after_probe,
    after_refusal,
    after_start,
    new_containers,
    restart_delay,
    restarts_after,
    restore_containers,
)
from gpu_platform.devcluster.hostnode.pod_status import build_status
from gpu_platform.devcluster.hostnode.processes import ProbeKind
from gpu_platform.devcluster.hostnode.sources import CannotStartError
from tests.unit.devcluster.hostnode.builders import NOW, ended, make_container, make_pod, running, seconds


def test_restarts_begin_at_once_and_slow_down_to_a_minute() -> None:
    delays = [restart_delay(crashes).total_seconds() for crashes in range(1, 10)]
    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert restart_delay(10_000).total_seconds() == 60


@pytest.mark.parametrize(
    ("policy", "exit_code", "main", "init", "sidecar"),
    [
        ("Always", 0, True, False, True),
        ("Always", 1, True, True, True),
        ("OnFailure", 0, False, False, True),
        ("OnFailure", 1, True, True, True),
        ("Never", 0, False, False, True),
        ("Never", 1, False, False, True),
    ],
)
def test_the_policy_says_who_comes_back(policy: str, exit_code: int, main: bool, init: bool, sidecar: bool) -> None:
    inits = [make_container("init"), make_container("sidecar", restartPolicy="Always")]
    pod = make_pod(restartPolicy=policy, initContainers=inits)
    specs = [pod["spec"]["containers"][0], *inits]
    assert [restarts_after(pod, spec, exit_code) for spec in specs] == [main, init, sidecar]


def test_attempts_are_counted_from_zero() -> None:
    spec = make_container()
    first = after_start(Container("main", Waiting("ContainerCreating")), spec, 11, NOW)
    assert first.attempt == 0
    crashed = after_exit(first, Ending(1), restarts=True, now=NOW)
    assert crashed.attempt == 0
    assert after_start(crashed, spec, 12, NOW).attempt == 1


def test_an_end_that_is_not_final_waits_and_remembers() -> None:
    container = replace(running(), crashes=2)
    crashed = after_exit(container, Ending(3, "oops"), restarts=True, now=NOW)
    assert crashed.state == Waiting(
        "CrashLoopBackOff", "back-off 2s restarting container 'main' after exit code 3", NOW + seconds(2)
    )
    assert crashed.last == Terminated(3, "Error", "oops", NOW - seconds(5), NOW, process=11)


def test_an_end_that_is_final_stays() -> None:
    done = after_exit(running(), Ending(0), restarts=False, now=NOW)
    assert done.state == Terminated(0, "Completed", "", NOW - seconds(5), NOW, process=11)


def test_a_long_run_forgives_the_crashes_before_it() -> None:
    container = replace(running(started_at=NOW - seconds(600)), crashes=7)
    assert after_exit(container, Ending(1), restarts=True, now=NOW).crashes == 1


def test_a_container_that_cannot_start_says_why_and_is_tried_again() -> None:
    container = after_refusal(Container("main", Waiting("ContainerCreating")), CannotStartError("no"), NOW)
    assert container.state == Waiting("CreateContainerConfigError", "no", NOW + seconds(1))
    assert not container.was_started


@pytest.mark.parametrize(
    ("probes", "started", "ready"),
    [
        ((), True, True),
        (("readinessProbe",), True, False),
        (("startupProbe",), False, False),
        (("startupProbe", "readinessProbe"), False, False),
        (("livenessProbe",), True, True),
    ],
)
def test_a_new_process_is_ready_unless_a_probe_has_to_say_so(
    probes: tuple[str, ...], started: bool, ready: bool
) -> None:
    spec = make_container() | {probe: {} for probe in probes}
    container = after_start(Container("main", Waiting("ContainerCreating")), spec, 11, NOW)
    assert container.state == Running(NOW, 11, started=started, ready=ready)


@pytest.mark.parametrize(
    ("kind", "verdict", "want"),
    [
        (ProbeKind.STARTUP, True, {"started": True, "ready": True}),
        (ProbeKind.STARTUP, None, {"started": False, "ready": False}),
        (ProbeKind.STARTUP, False, {"started": False, "failure": "startup probe failed: no"}),
        (ProbeKind.READINESS, True, {"ready": True, "failure": None}),
        (ProbeKind.READINESS, False, {"ready": False, "failure": None}),
        (ProbeKind.LIVENESS, True, {"failure": None}),
        (ProbeKind.LIVENESS, False, {"ready": False, "failure": "liveness probe failed: no"}),
    ],
)
def test_a_verdict_changes_what_it_is_about(kind: ProbeKind, verdict: bool | None, want: dict[str, Any]) -> None:
    state = after_probe(running(started=False, ready=False), kind, verdict, "no", make_container()).state
    assert {name: getattr(state, name) for name in want} == want


class TestRestore:
    """What an agent finds after its predecessor: each state goes through the API and back."""

    def restored(self, container: Container, **spec: Any) -> Container:
        pod = make_pod(**spec)
        pod["status"] = build_status(pod, {"main": container}, "127.7.0.1", None, NOW)
        return restore_containers(pod, NOW, is_intact=True)["main"]

    def test_a_pod_that_is_new_to_the_node_is_new(self) -> None:
        for is_intact in (True, False):
            assert restore_containers(make_pod(), NOW, is_intact=is_intact) == new_containers(make_pod())

    def test_what_ran_has_ended_and_comes_back_at_once(self) -> None:
        container = self.restored(replace(running(), attempt=2))
        assert isinstance(container.state, Waiting)
        assert container.state.due_at == NOW
        assert container.last is not None
        assert container.last.exit_code == 137
        assert after_start(container, make_container(), 12, NOW).attempt == 3

    def test_what_ran_and_must_not_restart_has_failed(self) -> None:
        container = self.restored(running(), restartPolicy="Never")
        assert isinstance(container.state, Terminated)
        assert container.state.exit_code == 137

    def test_a_pod_that_lost_its_directory_begins_again(self) -> None:
        pod = make_pod(initContainers=[make_container("init")])
        before = {"init": ended("init"), "main": replace(running(), attempt=2)}
        pod["status"] = build_status(pod, before, "127.7.0.1", None, NOW)
        containers = restore_containers(pod, NOW, is_intact=False)
        assert [container.was_started for container in containers.values()] == [False, False]
        assert after_start(containers["init"], make_container(), 12, NOW).attempt == 1
        assert after_start(containers["main"], make_container(), 12, NOW).attempt == 3

    def test_what_had_ended_has_ended(self) -> None:
        assert self.restored(ended(exit_code=4)) == ended(exit_code=4)

    def test_what_waited_for_its_restart_waits_no_longer(self) -> None:
        crashed = after_exit(replace(running(), attempt=5), Ending(3, "oops"), restarts=True, now=NOW)
        container = self.restored(crashed)
        assert container.last == crashed.last
        assert container.attempt == 5
        assert isinstance(container.state, Waiting)
        assert container.state.due_at is None
