from dataclasses import replace
from typing import Any

from gpu_platform.devcluster.hostnode.plan import Container, Ending, Outcome, Waiting, after_exit
from gpu_platform.devcluster.hostnode.pod_status import build_status, plan_patch
from tests.unit.devcluster.hostnode.builders import NOW, ended, make_container, make_pod, running, seconds

ADDRESS = "127.7.0.1"


def status(pod: dict[str, Any], *containers: Container, outcome: Outcome | None = None) -> dict[str, Any]:
    return build_status(pod, {container.name: container for container in containers}, ADDRESS, outcome, NOW)


def conditions(built: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in built["conditions"]}


def waiting(name: str = "main") -> Container:
    return Container(name, Waiting("ContainerCreating"))


def test_a_running_pod_shows_the_address_of_the_simulated_range() -> None:
    built = status(make_pod(), running())
    assert (built["podIP"], built["podIPs"], built["hostIP"]) == ("10.7.0.1", [{"ip": "10.7.0.1"}], "127.0.0.1")


def test_a_running_pod_is_ready() -> None:
    built = status(make_pod(), running())
    assert built["phase"] == "Running"
    assert conditions(built) == {
        "PodReadyToStartContainers": ("True", None),
        "Initialized": ("True", None),
        "ContainersReady": ("True", None),
        "Ready": ("True", None),
        "PodScheduled": ("True", None),
    }
    assert built["containerStatuses"] == [
        {
            "name": "main",
            "image": "none",
            "imageID": "",
            "restartCount": 0,
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": "2030-01-02T03:04:00Z"}},
            "containerID": "process://11",
        }
    ]


def test_a_pod_is_pending_until_every_container_was_started() -> None:
    pod = make_pod(make_container("a"), make_container("b"))
    assert status(pod, running("a"), waiting("b"))["phase"] == "Pending"


def test_a_crash_loop_shows_its_last_end() -> None:
    crashed = after_exit(replace(running(), crashes=1, attempt=1), Ending(3, "two"), restarts=True, now=NOW)
    built = status(make_pod(), crashed)
    assert built["phase"] == "Running"
    [shown] = built["containerStatuses"]
    assert shown["restartCount"] == 1
    assert shown["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert shown["lastState"]["terminated"] == {
        "exitCode": 3,
        "reason": "Error",
        "message": "two",
        "startedAt": "2030-01-02T03:04:00Z",
        "finishedAt": "2030-01-02T03:04:05Z",
        "containerID": "process://11",
    }
    assert conditions(built)["Ready"] == ("False", "ContainersNotReady")


def test_init_containers_hold_the_initialized_condition() -> None:
    pod = make_pod(initContainers=[make_container("init"), make_container("side", restartPolicy="Always")])
    before = status(pod, running("init"), waiting("side"), waiting())
    assert conditions(before)["Initialized"] == ("False", "ContainersNotInitialized")
    assert before["phase"] == "Pending"
    after = status(pod, ended("init"), running("side"), running())
    assert conditions(after)["Initialized"] == ("True", None)
    assert [shown["ready"] for shown in after["initContainerStatuses"]] == [True, True]


def test_a_sidecar_that_is_not_ready_keeps_the_pod_from_being_ready() -> None:
    pod = make_pod(initContainers=[make_container("side", restartPolicy="Always")])
    built = status(pod, running("side", ready=False), running())
    assert conditions(built)["Ready"] == ("False", "ContainersNotReady")


def test_readiness_gates_are_honoured() -> None:
    pod = make_pod(readinessGates=[{"conditionType": "example.com/gate"}])
    built = status(pod, running())
    assert conditions(built)["ContainersReady"] == ("True", None)
    assert conditions(built)["Ready"] == ("False", "ReadinessGatesNotReady")
    pod["status"]["conditions"] = [{"type": "example.com/gate", "status": "True"}]
    assert conditions(status(pod, running()))["Ready"] == ("True", None)


def test_a_pod_that_ended_says_how() -> None:
    built = status(make_pod(), ended(), outcome="Succeeded")
    assert built["phase"] == "Succeeded"
    assert conditions(built)["Ready"] == ("False", "PodCompleted")
    assert conditions(status(make_pod(), ended(exit_code=1), outcome="Failed"))["Ready"] == ("False", "PodFailed")


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    pod = make_pod()
    pod["status"] = status(pod, running())
    later = build_status(pod, {"main": running(ready=False)}, ADDRESS, None, NOW + seconds(60))
    times = {condition["type"]: condition["lastTransitionTime"] for condition in later["conditions"]}
    assert times["Initialized"] == "2030-01-02T03:04:05Z"
    assert times["Ready"] == "2030-01-02T03:05:05Z"


class TestPatch:
    def published(self) -> dict[str, Any]:
        """The pod as the API server shows it: empty fields are dropped, some are added."""
        pod = make_pod()
        pod["status"] = status(pod, running()) | {"qosClass": "BestEffort"}
        for condition in pod["status"]["conditions"]:
            condition["lastProbeTime"] = None
            del condition["reason"], condition["message"]
        pod["status"]["conditions"].append({"type": "other", "status": "True"})
        pod["status"]["containerStatuses"][0]["lastState"] = {}
        pod["metadata"]["annotations"]["runtime.lokiwager.io/host-address"] = ADDRESS
        return pod

    def test_nothing_is_written_when_the_pod_says_it_already(self) -> None:
        pod = self.published()
        assert plan_patch(pod, status(pod, running()), ADDRESS) is None

    def test_a_change_is_written_with_the_uid(self) -> None:
        pod = self.published()
        patch = plan_patch(pod, status(pod, running(ready=False)), ADDRESS)
        assert patch is not None
        assert patch["metadata"] == {
            "uid": pod["metadata"]["uid"],
            "annotations": {"runtime.lokiwager.io/host-address": ADDRESS},
        }
        assert patch["status"]["podIPs"] == [{"ip": "10.7.0.1"}, {"$patch": "replace"}]

    def test_what_somebody_else_changed_is_put_right(self) -> None:
        pod = self.published()
        pod["status"]["conditions"][3]["status"] = "False"
        assert plan_patch(pod, status(pod, running()), ADDRESS) is not None

    def test_a_missing_annotation_is_written(self) -> None:
        pod = self.published()
        pod["metadata"]["annotations"] = {}
        assert plan_patch(pod, status(pod, running()), ADDRESS) is not None
