from pathlib import Path
from typing import Any

import pytest

from gpu_platform.devcluster.hostnode.launch import Launch, build_launch, check_support
from gpu_platform.devcluster.hostnode.sources import CannotStartError
from gpu_platform.devcluster.hostnode.volumes import PodDirectory
from tests.unit.devcluster.hostnode.builders import FACTS, make_container, make_pod

DIRECTORY = PodDirectory(Path("/r/0123abcd"))


def launch(*, inherited: dict[str, str] | None = None, **fields: Any) -> Launch:
    container = make_container(**fields)
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "more", "emptyDir": {}}]
    return build_launch(
        make_pod(container, volumes=volumes),
        container,
        sources={},
        facts=FACTS,
        directory=DIRECTORY,
        inherited=inherited or {},
    )


def test_references_are_expanded_before_paths_are_rewritten() -> None:
    result = launch(
        command=["serve", "--at=$(POD_IP)"],
        args=["$(FILE)", "$$(FILE)"],
        env=[
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "FILE", "value": "/data/file"},
        ],
        volumeMounts=[{"name": "more", "mountPath": "/data/"}],
        workingDir="/data/work",
    )
    assert result.command.argv == ("serve", "--at=127.7.0.1", "/r/0123abcd/1/file", "$(FILE)")
    assert result.command.environment["FILE"] == "/r/0123abcd/1/file"
    assert result.command.directory == "/r/0123abcd/1/work"


def test_a_process_finds_its_own_home_and_the_agents_path() -> None:
    environment = launch(inherited={"PATH": "/bin", "HOME": "/elsewhere"}).command.environment
    assert environment == {
        "PATH": "/bin",
        "HOME": "/r/0123abcd/home",
        "TMPDIR": "/r/0123abcd/tmp",
        "HOSTNAME": "pod",
        "GPU_PLATFORM_DEV_POD": "0123abcd-4567-4000-8000-000000000000",
        "GPU_PLATFORM_DEV_CONTAINER": "0123abcd-4567-4000-8000-000000000000/main",
    }


def test_the_container_may_choose_its_path_but_not_its_marks() -> None:
    env = [{"name": "PATH", "value": "/opt"}, {"name": "GPU_PLATFORM_DEV_POD", "value": "other"}]
    environment = launch(inherited={"PATH": "/bin"}, env=env).command.environment
    assert environment["PATH"] == "/opt"
    assert environment["GPU_PLATFORM_DEV_POD"] != "other"


def test_the_working_directory_is_the_home_unless_named() -> None:
    assert launch().command.directory == "/r/0123abcd/home"
    assert launch(workingDir="/usr").command.directory == "/usr"


def test_the_termination_message_goes_into_the_pods_directory() -> None:
    assert launch(command=["sh", "-c", "echo bye >/dev/termination-log"]).command.argv[-1] == (
        "echo bye >/r/0123abcd/end/main"
    )
    chosen = launch(command=["log", "/run/end"], terminationMessagePath="/run/end")
    assert chosen.command.argv == ("log", "/r/0123abcd/end/main")


def test_mounts_may_take_a_part_of_a_volume() -> None:
    result = launch(
        command=["cat", "/etc/app.conf", "/logs/x"],
        env=[{"name": "NAME", "value": "me"}],
        volumeMounts=[
            {"name": "data", "mountPath": "/etc/app.conf", "subPath": "conf/app.conf"},
            {"name": "more", "mountPath": "/logs", "subPathExpr": "$(NAME)/logs"},
        ],
    )
    assert result.command.argv == ("cat", "/r/0123abcd/0/conf/app.conf", "/r/0123abcd/1/me/logs/x")
    assert result.subpaths == (Path("/r/0123abcd/0/conf/app.conf"), Path("/r/0123abcd/1/me/logs"))


def test_a_probe_runs_in_the_containers_surroundings() -> None:
    result = launch(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    command = result.exec_command(["test", "-e", "/data/ready"])
    assert command.argv == ("test", "-e", "/r/0123abcd/0/ready")
    assert command.environment == result.command.environment
    assert command.directory == result.command.directory


def test_nothing_can_be_mounted_at_the_root() -> None:
    with pytest.raises(CannotStartError, match="nothing can be mounted at /"):
        launch(volumeMounts=[{"name": "data", "mountPath": "/"}])


def test_a_container_without_a_command_is_refused_as_an_image() -> None:
    container = {"name": "main", "image": "nginx", "args": ["-g"]}
    with pytest.raises(CannotStartError, match="this node runs commands, not images") as caught:
        check_support(make_pod(container), container)
    assert caught.value.reason == "ImagePullBackOff"


def test_a_post_start_hook_is_refused_rather_than_forgotten() -> None:
    container = make_container(lifecycle={"postStart": {"exec": {"command": ["x"]}}})
    with pytest.raises(CannotStartError, match="postStart"):
        check_support(make_pod(container), container)
