"""What is due for a pod: the rows of `plan_pod`'s table, each with the cases that make it hard."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpu_platform.devcluster.hostnode.plan import (
    Container,
    Kill,
    Plan,
    Running,
    Start,
    Stop,
    Stopping,
    StopRequest,
    Waiting,
    plan_pod,
    plan_stop_request,
)
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
