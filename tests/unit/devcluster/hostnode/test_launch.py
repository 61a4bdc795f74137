"""From a pod's spec to the commands of its containers: environment, expansion and paths."""

from pathlib import Path
from typing import Any

import pytest

from gpu_platform.devcluster.hostnode.launch import (
    Launch,
    PathRewriter,
    build_environment,
    build_launch,
    check_support,
    expand,
)
from gpu_platform.devcluster.hostnode.sources import CannotStartError, Sources, config_map, find_env_references, secret
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


SOURCES: Sources = {
    config_map("settings"): {"color": b"blue", "size": b"9", "odd=key": b"x"},
    secret("keys"): {"token": b"s3cret"},
    config_map("missing"): None,
    secret("missing"): None,
}


def environment(**fields: Any) -> dict[str, str]:
    container = make_container(**fields)
    return build_environment(make_pod(container), container, SOURCES, FACTS)


def value_from(**origin: Any) -> str | None:
    return environment(env=[{"name": "V", "valueFrom": origin}]).get("V")


def test_later_variables_win_and_refer_to_earlier_ones() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)-$(color)-$(LATER)"},
        {"name": "A", "value": "2"},
        {"name": "LATER"},
    ]
    assert environment(env=env, envFrom=[{"configMapRef": {"name": "settings"}}]) == {
        "A": "2",
        "B": "1-blue-$(LATER)",
        "LATER": "",
        "color": "blue",
        "size": "9",
    }


def test_bulk_sources_take_a_prefix_and_may_be_optional() -> None:
    sources = [
        {"prefix": "C_", "configMapRef": {"name": "settings"}},
        {"prefix": "S_", "secretRef": {"name": "keys"}},
        {"configMapRef": {"name": "missing", "optional": True}},
    ]
    assert environment(envFrom=sources) == {"C_color": "blue", "C_size": "9", "S_token": "s3cret"}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("metadata.name", "pod"),
        ("metadata.namespace", "space"),
        ("metadata.uid", "0123abcd-4567-4000-8000-000000000000"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", 'say "hi"'),
        ("spec.nodeName", "host"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.7.0.1"),
        ("status.podIPs", "127.7.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_a_pod_knows_its_fields(path: str, want: str) -> None:
    assert value_from(fieldRef={"fieldPath": path}) == want


@pytest.mark.parametrize(
    ("resource", "divisor", "want"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.memory", "1Mi", "8192"),
        ("requests.memory", "1Mi", "64"),
        ("requests.cpu", "1m", "0"),
        ("limits.nvidia.com/gpu", None, "1"),
    ],
)
def test_a_container_knows_its_resources(resource: str, divisor: str | None, want: str) -> None:
    container = make_container(
        resources={"limits": {"cpu": "1500m", "nvidia.com/gpu": "1"}, "requests": {"memory": "64Mi"}},
        env=[{"name": "V", "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}],
    )
    assert build_environment(make_pod(container), container, {}, FACTS) == {"V": want}


def test_keys_of_config_maps_and_secrets_become_values() -> None:
    assert value_from(configMapKeyRef={"name": "settings", "key": "color"}) == "blue"
    assert value_from(secretKeyRef={"name": "keys", "key": "token"}) == "s3cret"


def test_an_optional_key_that_is_missing_leaves_the_variable_out() -> None:
    assert value_from(configMapKeyRef={"name": "missing", "key": "color", "optional": True}) is None
    assert value_from(secretKeyRef={"name": "keys", "key": "none", "optional": True}) is None


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ({"configMapKeyRef": {"name": "missing", "key": "color"}}, 'configmap "missing" not found'),
        ({"secretKeyRef": {"name": "missing", "key": "token"}}, 'secret "missing" not found'),
        ({"secretKeyRef": {"name": "keys", "key": "none"}}, "couldn't find key none in Secret keys"),
        ({"fieldRef": {"fieldPath": "status.unknown"}}, "'status.unknown'"),
        ({"fileKeyRef": {}}, "fileKeyRef"),
    ],
)
def test_what_is_missing_is_named(origin: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotStartError, match=words) as caught:
        value_from(**origin)
    assert caught.value.reason == "CreateContainerConfigError"


def test_all_references_of_a_container_are_found() -> None:
    container = make_container(
        envFrom=[{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
        env=[
            {"name": "V", "value": "x"},
            {"name": "W", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "X", "valueFrom": {"secretKeyRef": {"name": "d", "key": "k"}}},
        ],
    )
    assert find_env_references(container) == {config_map("a"), secret("b"), config_map("c"), secret("d")}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("$(A)", "one"),
        ("x$(A)y$(B)z", "xoneytwoz"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$$$$", "$$"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$(A $$", "$(A $"),
        ("$()", "$()"),
        ("$($(A))", "$($(A))"),
        ("$(LOOP)", "$(A)"),
    ],
)
def test_references_are_expanded_as_kubernetes_does_it(text: str, want: str) -> None:
    assert expand(text, {"A": "one", "B": "two", "LOOP": "$(A)"}) == want


REWRITER = PathRewriter({"/mnt": "/r/0", "/mnt/x": "/r/1", "/etc/app/config.yaml": "/r/2/config.yaml"})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/mnt", "/r/0"),
        ("/mnt/", "/r/0/"),
        ("/mnt/file", "/r/0/file"),
        ("/mnt/x", "/r/1"),
        ("/mnt/x/file", "/r/1/file"),
        ("/mnt/xy", "/r/0/xy"),
        ("/mnt/x.bak", "/r/0/x.bak"),
        ("--flag=/mnt/x:ro", "--flag=/r/1:ro"),
        ("a:/mnt/x", "a:/r/1"),
        ("/mnt/x:/mnt/a:/usr/bin", "/r/1:/r/0/a:/usr/bin"),
        ("unix:///mnt/x/s.sock", "unix:///r/1/s.sock"),
        ("unix:/mnt/x/s.sock", "unix:/r/1/s.sock"),
        ("cat </mnt/x >/mnt/out; echo '/mnt/q' \"/mnt/x\"", "cat </r/1 >/r/0/out; echo '/r/0/q' \"/r/1\""),
        ("$(cat /mnt/x)", "$(cat /r/1)"),
        ("`cat /mnt/x`", "`cat /r/1`"),
        ("@/mnt/x", "@/r/1"),
        ("[/mnt/x,/mnt/y]", "[/r/1,/r/0/y]"),
        ("/etc/app/config.yaml", "/r/2/config.yaml"),
        ("print('/mnt/x\\n')", "print('/r/1\\n')"),
    ],
)
def test_a_path_into_a_mount_is_rewritten(text: str, want: str) -> None:
    assert REWRITER.rewrite(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "/mntx",
        "/mnt-2/file",
        "/mnt.old",
        "/srv/mnt/x",
        "./mnt/x",
        "~/mnt/x",
        "$HOME/mnt/x",
        "${BASE}/mnt/x",
        "$(pwd)/mnt/x",
        "*/mnt/x",
        "http://mnt/x",
        "http://host/mnt/x",
        "//mnt/x",
        "/mnt*",
        "/mnt$N",
        "/mnt%d",
        "/etc/app",
        "/etc/app/config.yaml.bak",
        "mnt/x",
        "",
    ],
)
def test_what_only_looks_like_a_mount_stays(text: str) -> None:
    assert REWRITER.rewrite(text) == text


def test_a_rewritten_path_is_not_rewritten_again() -> None:
    rewriter = PathRewriter({"/scratch": "/scratch/0", "/a": "/scratch/1"})
    assert rewriter.rewrite("/scratch/f /a/f") == "/scratch/0/f /scratch/1/f"


def test_without_mounts_every_text_stays() -> None:
    assert PathRewriter().rewrite("/mnt/x") == "/mnt/x"
