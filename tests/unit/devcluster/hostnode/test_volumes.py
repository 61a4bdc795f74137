import stat
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.devcluster.hostnode.sources import (
    CannotStartError,
    Reference,
    Sources,
    claim,
    config_map,
    find_volume_references,
    secret,
)
from gpu_platform.devcluster.hostnode.volumes import (
    PodDirectory,
    VolumeFile,
    VolumeLink,
    link_volume,
    plan_volume,
    write_volume,
)
from tests.unit.devcluster.hostnode.builders import FACTS, make_container, make_pod

TOKEN = Reference("Token", "vault", 600)
SOURCES: Sources = {
    config_map("settings"): {"color": b"blue", "size": b"9"},
    secret("keys"): {"token": b"s3cret"},
    config_map("missing"): None,
    TOKEN: {"token": b"jwt"},
}


def files(**volume: Any) -> dict[str, tuple[bytes, int]] | None:
    container = make_container(resources={"limits": {"memory": "2Mi"}})
    planned = plan_volume({"name": "v", **volume}, make_pod(container), SOURCES, FACTS)
    assert not isinstance(planned, VolumeLink)
    return None if planned is None else {file.path: (file.content, file.mode) for file in planned}


def test_a_claim_is_the_directory_of_its_volume() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    sources: Sources = {claim("data"): {"path": b"/srv/data"}}
    assert find_volume_references(make_pod(volumes=[volume])) == {claim("data")}
    assert plan_volume(volume, make_pod(), sources, FACTS) == VolumeLink(Path("/srv/data"))


def test_a_linked_volume_follows_its_target_and_its_files_outlive_the_pod(tmp_path: Path) -> None:
    first, second, place = tmp_path / "first", tmp_path / "second", tmp_path / "pod" / "0"
    for directory in (first, second, place):
        directory.mkdir(parents=True)
    for target in (first, first, second):
        link_volume(place, target)
        (place / "file").write_text(target.name)
    assert ((first / "file").read_text(), (second / "file").read_text()) == ("first", "second")
    PodDirectory(tmp_path / "pod").remove()
    assert (second / "file").exists()


def test_an_empty_dir_belongs_to_the_processes() -> None:
    assert files(emptyDir={}) is None


def test_a_config_map_has_a_file_per_key() -> None:
    want = {"color": (b"blue", 0o644), "size": (b"9", 0o644)}
    assert files(configMap={"name": "settings"}) == want


def test_items_choose_names_and_modes() -> None:
    items = [{"key": "color", "path": "a/b.txt", "mode": 0o400}, {"key": "size", "path": "size"}]
    volume = {"name": "settings", "items": items, "defaultMode": 0o600}
    assert files(configMap=volume) == {"a/b.txt": (b"blue", 0o400), "size": (b"9", 0o600)}


def test_a_secret_has_a_file_per_key() -> None:
    assert files(secret={"secretName": "keys", "defaultMode": 0o400}) == {"token": (b"s3cret", 0o400)}


def test_the_downward_api_fills_files() -> None:
    items = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations"}},
        {
            "path": "memory",
            "resourceFieldRef": {"containerName": "main", "resource": "limits.memory", "divisor": "1Ki"},
        },
    ]
    assert files(downwardAPI={"items": items}) == {
        "name": (b"pod", 0o644),
        "labels": (b'app="web"', 0o644),
        "notes": (rb'note="say \"hi\""', 0o644),
        "memory": (b"2048", 0o644),
    }


def test_a_projected_volume_joins_its_sources() -> None:
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "color", "path": "color"}]}},
        {"secret": {"name": "keys"}},
        {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        {"serviceAccountToken": {"path": "jwt", "audience": "vault", "expirationSeconds": 600}},
    ]
    assert files(projected={"sources": sources, "defaultMode": 0o440}) == {
        "color": (b"blue", 0o440),
        "token": (b"s3cret", 0o440),
        "ns": (b"space", 0o440),
        "jwt": (b"jwt", 0o440),
    }


def test_optional_sources_may_be_missing() -> None:
    assert files(configMap={"name": "missing", "optional": True}) == {}
    items = [{"key": "none", "path": "none"}]
    assert files(configMap={"name": "settings", "optional": True, "items": items}) == {}


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ({"configMap": {"name": "missing"}}, 'configmap "missing" not found'),
        ({"configMap": {"name": "settings", "items": [{"key": "none", "path": "x"}]}}, "non-existent key: none"),
        ({"hostPath": {"path": "/"}}, "of kind hostPath"),
        ({"persistentVolumeClaim": {"claimName": "c"}}, 'claim "c" not found'),
        ({"projected": {"sources": [{"clusterTrustBundle": {}}]}}, "clusterTrustBundle"),
    ],
)
def test_what_cannot_be_provided_is_named(volume: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotStartError, match=words):
        files(**volume)


def test_all_references_of_the_volumes_are_found() -> None:
    parts = [
        {"configMap": {"name": "c"}},
        {"secret": {"name": "d"}},
        {"serviceAccountToken": {"path": "jwt"}},
        {"downwardAPI": {}},
    ]
    volumes = [
        {"name": "a", "configMap": {"name": "a"}},
        {"name": "b", "secret": {"secretName": "b"}},
        {"name": "c", "projected": {"sources": parts}},
        {"name": "d", "emptyDir": {}},
    ]
    assert find_volume_references(make_pod(volumes=volumes)) == {
        config_map("a"),
        secret("b"),
        config_map("c"),
        secret("d"),
        Reference("Token", "", 3600),
    }


def test_a_volume_holds_exactly_its_files(tmp_path: Path) -> None:
    write_volume(tmp_path, [VolumeFile("a/b", b"1", 0o400), VolumeFile("c", b"2", 0o644)])
    write_volume(tmp_path, [VolumeFile("a/b", b"3", 0o640)])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "a/b"]
    assert (tmp_path / "a/b").read_bytes() == b"3"
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o640


def test_a_file_that_is_right_is_not_touched(tmp_path: Path) -> None:
    write_volume(tmp_path, [VolumeFile("a", b"1", 0o644)])
    before = (tmp_path / "a").stat().st_ino
    write_volume(tmp_path, [VolumeFile("a", b"1", 0o644)])
    assert (tmp_path / "a").stat().st_ino == before


def test_a_socket_in_any_volume_has_a_short_path() -> None:
    directory = PodDirectory(Path("/run/gpu-dev-012345/pods/0123abcd"))
    names = [f"{'long-name-' * 6}{number:03d}" for number in range(100)]
    pod = make_pod(volumes=[{"name": name, "emptyDir": {}} for name in names])
    path = directory.volume(pod, names[-1]) / f"{'s' * 40}.sock"
    assert len(str(path)) < 100


def test_only_the_logs_of_two_attempts_are_kept(tmp_path: Path) -> None:
    directory = PodDirectory(tmp_path)
    for attempt in (8, 9, 10):
        directory.log("main", attempt).parent.mkdir(parents=True, exist_ok=True)
        directory.log("main", attempt).touch()
    directory.log("main", 8).with_name("8.log.1").touch()
    directory.forget_logs("main", before=9)
    assert sorted(path.name for path in (tmp_path / "logs/main").iterdir()) == ["10.log", "9.log"]
