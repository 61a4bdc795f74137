from typing import Any

import pytest

from gpu_platform.devcluster.hostnode.launch import build_environment
from gpu_platform.devcluster.hostnode.sources import CannotStartError, Sources, config_map, find_env_references, secret
from tests.unit.devcluster.hostnode.builders import FACTS, make_container, make_pod

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
