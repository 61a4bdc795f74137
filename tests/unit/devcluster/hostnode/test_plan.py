"""What is due for a pod: the rows of `plan_pod`'s table, each with the cases that make it hard."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.devcluster.hostnode.plan import (
    Container,
    Ending,
    Kill,
    Plan,
    Running,
    Start,
    Stop,
    Stopping,
    StopRequest,
    Terminated,
    Waiting,
    after_exit,
    after_probe,
    after_refusal,
    after_start,
    new_containers,
    plan_pod,
    plan_stop_request,
    restart_delay,
    restarts_after,
    restore_containers,
)
from gpu_platform.devcluster.hostnode.pod_status import build_status
from gpu_platform.devcluster.hostnode.processes import ProbeKind
from gpu_platform.devcluster.hostnode.sources import CannotStartError
from tests.unit.devcluster.hostnode.builders import NOW, ended, ending, make_container, make_pod, running, seconds


def waiting(name: str = "main", due_in: float | None = None, **fields: Any) -> Container:
    due_at = None if due_in is None else NOW + seconds(due_in)
    return Container(name, Waiting("ContainerCreating", due_at=due_at), **fields)


def restarting(name: str = "main", due_in: float = 0) -> Container:
    return waiting(name, due_in, last=ending(1))


def stopping(container: Container, ago: float, grace: float = 30, *, killed: bool = False) -> Container:
    assert isinstance(container.state, Running)
    stop = Stopping(NOW - seconds(ago), seconds(grace), killed)
    return replace(container, state=replace(container.state, stopping=stop))


def plan(pod: dict[str, Any], *containers: Container, request: StopRequest | None = None) -> Plan:
    return plan_pod(pod, {container.name: container for container in containers}, request, NOW)


def request(deadline_in: float, grace: float = 30) -> StopRequest:
    return StopRequest(NOW + seconds(deadline_in), seconds(grace))


TWO = make_pod(make_container("a"), make_container("b"))
WITH_INITS = make_pod(initContainers=[make_container("i1"), make_container("i2")])
WITH_SIDECARS = make_pod(
    initContainers=[
        make_container("s1", restartPolicy="Always"),
        make_container("i1"),
        make_container("s2", restartPolicy="Always"),
    ]
)


class TestRunning:
    def test_all_main_containers_start_together(self) -> None:
        assert plan(TWO, waiting("a"), waiting("b")) == Plan((Start("a"), Start("b")))

    def test_a_pod_that_runs_needs_nothing(self) -> None:
        assert plan(TWO, running("a"), running("b")) == Plan()

    def test_a_container_in_back_off_is_started_when_it_is_due(self) -> None:
        assert plan(TWO, restarting("a", 4), running("b")) == Plan(wake_at=NOW + seconds(4))
        assert plan(TWO, restarting("a", 0), running("b")) == Plan((Start("a"),))

    def test_the_earliest_time_is_when_to_look_again(self) -> None:
        assert plan(TWO, restarting("a", 4), restarting("b", 2)).wake_at == NOW + seconds(2)

    def test_a_container_whose_probe_failed_is_stopped_and_then_killed(self) -> None:
        sick = running("a", failure="liveness probe failed")
        pod = make_pod(make_container("a"), terminationGracePeriodSeconds=7)
        assert plan(pod, sick) == Plan((Stop("a", seconds(7), "liveness probe failed"),))
        assert plan(pod, stopping(sick, 3, 7)) == Plan(wake_at=NOW + seconds(4))
        assert plan(pod, stopping(sick, 7, 7)) == Plan((Kill("a"),))
        assert plan(pod, stopping(sick, 8, 7, killed=True)) == Plan()


class TestInitContainers:
    def test_they_run_one_after_the_other(self) -> None:
        main = waiting()
        assert plan(WITH_INITS, waiting("i1"), waiting("i2"), main) == Plan((Start("i1"),))
        assert plan(WITH_INITS, running("i1"), waiting("i2"), main) == Plan()
        assert plan(WITH_INITS, ended("i1"), waiting("i2"), main) == Plan((Start("i2"),))
        assert plan(WITH_INITS, ended("i1"), ended("i2"), main) == Plan((Start("main"),))

    def test_one_that_failed_holds_the_others_until_it_is_started_again(self) -> None:
        assert plan(WITH_INITS, restarting("i1", 3), waiting("i2"), waiting()) == Plan(wake_at=NOW + seconds(3))

    def test_one_that_failed_for_good_fails_the_pod(self) -> None:
        assert plan(WITH_INITS, ended("i1", 1), waiting("i2"), waiting()) == Plan(outcome="Failed")

    def test_a_sidecar_lets_the_next_one_start_once_it_has_started(self) -> None:
        rest = (waiting("i1"), waiting("s2"), waiting())
        assert plan(WITH_SIDECARS, waiting("s1"), *rest) == Plan((Start("s1"),))
        assert plan(WITH_SIDECARS, running("s1", started=False), *rest) == Plan()
        assert plan(WITH_SIDECARS, running("s1"), *rest) == Plan((Start("i1"),))

    def test_main_containers_start_beside_the_sidecars(self) -> None:
        containers = (running("s1"), ended("i1"), running("s2"), waiting())
        assert plan(WITH_SIDECARS, *containers) == Plan((Start("main"),))

    def test_a_sidecar_that_crashed_comes_back_without_holding_the_others(self) -> None:
        containers = (restarting("s1", 5), running("i1"), waiting("s2"), waiting())
        assert plan(WITH_SIDECARS, *containers) == Plan(wake_at=NOW + seconds(5))
        containers = (restarting("s1", 5), ended("i1"), running("s2"), restarting("main"))
        assert plan(WITH_SIDECARS, *containers) == Plan((Start("main"),), NOW + seconds(5))
        containers = (restarting("s1"), ended("i1"), running("s2"), running())
        assert plan(WITH_SIDECARS, *containers) == Plan((Start("s1"),))


class TestEnding:
    def test_a_pod_has_succeeded_when_all_its_main_containers_have(self) -> None:
        assert plan(TWO, ended("a"), ended("b")) == Plan(outcome="Succeeded")
        assert plan(TWO, ended("a"), ended("b", 2)) == Plan(outcome="Failed")
        assert plan(TWO, ended("a"), running("b")) == Plan()

    def test_sidecars_end_after_the_main_containers_in_reverse_order(self) -> None:
        first = (running("s1"), ended("i1"), running("s2"), ended())
        assert plan(WITH_SIDECARS, *first) == Plan((Stop("s2", seconds(30), "the pod ends"),))
        second = (running("s1"), ended("i1"), ended("s2", 143), ended())
        assert plan(WITH_SIDECARS, *second) == Plan((Stop("s1", seconds(30), "the pod ends"),))
        third = (ended("s1", 143), ended("i1"), ended("s2", 143), ended())
        assert plan(WITH_SIDECARS, *third) == Plan(outcome="Succeeded")

    def test_a_pod_that_ended_before_a_restart_of_the_agent_never_runs_again(self) -> None:
        pod = make_pod() | {"status": {"phase": "Failed"}}
        assert plan(pod, waiting()) == Plan(outcome="Failed")
        assert plan(pod, running()).actions == (Stop("main", seconds(30), "the pod ends"),)


class TestStopping:
    def test_all_main_containers_are_stopped_at_once(self) -> None:
        actions = (Stop("a", seconds(30), "the pod ends"), Stop("b", seconds(30), "the pod ends"))
        assert plan(TWO, running("a"), running("b"), request=request(30)) == Plan(actions)

    def test_what_is_late_is_killed(self) -> None:
        containers = (stopping(running("a"), 10), stopping(running("b"), 10))
        assert plan(TWO, *containers, request=request(20)) == Plan(wake_at=NOW + seconds(20))
        assert plan(TWO, *containers, request=request(0)) == Plan((Kill("a"), Kill("b")))

    def test_no_container_is_started_any_more(self) -> None:
        assert plan(TWO, waiting("a"), restarting("b"), request=request(30)) == Plan(outcome="Failed")

    def test_sidecars_wait_for_the_main_containers(self) -> None:
        containers = (running("s1"), ended("i1"), running("s2"), stopping(running(), 1))
        assert plan(WITH_SIDECARS, *containers, request=request(29)) == Plan(wake_at=NOW + seconds(29))

    def test_a_sidecar_gets_a_little_time_even_when_the_grace_is_used_up(self) -> None:
        def with_sidecar(sidecar: Container, grace: float) -> Plan:
            return plan(WITH_SIDECARS, ended("s1"), ended("i1"), sidecar, ended(), request=request(-1, grace))

        assert with_sidecar(stopping(running("s2"), 0.5), 30) == Plan(wake_at=NOW + seconds(1.5))
        assert with_sidecar(stopping(running("s2"), 2), 30) == Plan((Kill("s2"),))
        assert with_sidecar(stopping(running("s2"), 0), 0) == Plan((Kill("s2"),))

    def test_what_succeeded_while_it_was_stopped_has_succeeded(self) -> None:
        assert plan(TWO, ended("a"), ended("b"), request=request(30)) == Plan(outcome="Succeeded")


class TestStopRequest:
    def deleted(self, grace: int | None) -> dict[str, Any]:
        pod = make_pod(terminationGracePeriodSeconds=9)
        pod["metadata"] |= {"deletionTimestamp": "2030-01-02T03:04:05Z", "deletionGracePeriodSeconds": grace}
        return pod

    def test_a_pod_that_stays_has_none(self) -> None:
        assert plan_stop_request(make_pod(), None, NOW, is_gone=False) is None

    def test_the_grace_of_the_deletion_wins(self) -> None:
        assert plan_stop_request(self.deleted(4), None, NOW, is_gone=False) == request(4, 4)
        assert plan_stop_request(self.deleted(None), None, NOW, is_gone=False) == request(9, 9)
        assert plan_stop_request(self.deleted(0), None, NOW, is_gone=False) == request(0, 0)

    def test_a_later_deletion_can_only_shorten_it(self) -> None:
        before = request(5, 9)
        assert plan_stop_request(self.deleted(9), before, NOW, is_gone=False) == before
        assert plan_stop_request(self.deleted(1), before, NOW, is_gone=False) == request(1, 1)

    def test_a_pod_that_is_gone_has_no_time_left(self) -> None:
        assert plan_stop_request(make_pod(), None, NOW, is_gone=True) == StopRequest(NOW, timedelta())


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
