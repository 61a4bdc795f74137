"""Which cluster the program changes: the provider's arguments out of the stack's settings."""

import json

import pytest
import yaml

from gpu_platform.domain.names import EMBEDDED_CONTEXT
from infra.cluster import check_service_monitors, parse_cluster
from infra.settings import SettingsError
from tests.architecture.repository import ROOT


def test_a_context_is_enough() -> None:
    assert parse_cluster({"context": "prod"}) == {"context": "prod", "enable_secret_mutable": True}


def test_every_setting_of_the_provider_is_handed_on_as_what_it_is() -> None:
    values = {
        "context": "true",
        "clusterIdentifier": "7",
        "enablePatchForce": "true",
        "enableSecretMutable": "false",
        "kubeClientSettings": '{"qps": 5}',
        "kubeconfig": "~/.kube/prod",
    }

    assert parse_cluster(values) == {
        "context": "true",
        "cluster_identifier": "7",
        "enable_patch_force": True,
        "enable_secret_mutable": False,
        "kube_client_settings": {"qps": 5},
        "kubeconfig": "~/.kube/prod",
    }


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "kubernetes:context is missing; name the context of this stack's cluster in your kubeconfig"),
        ({"clusterIdentifier": "prod"}, "kubernetes:context is missing; name the context"),
        ({"context": ""}, "kubernetes:context is missing; name the context"),
        (
            {"context": "a", "cluster": "b"},
            "kubernetes:cluster is not a setting here; there are: alwaysRender, cluster",
        ),
        ({"context": "a", "contxt": "b"}, "kubernetes:contxt is not a setting here; there are: "),
        (
            {"context": "a", "enablePatchForce": "yes"},
            "kubernetes:enablePatchForce is 'yes', and should be true or fal",
        ),
        ({"context": "a", "kubeClientSettings": "5"}, "kubernetes:kubeClientSettings is '5', and should be a section"),
    ],
)
def test_what_is_wrong_is_one_sentence(values: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_cluster(values)

    assert str(caught.value).startswith(sentence)


def test_the_repository_s_own_stacks_name_their_contexts() -> None:
    contexts = {
        stack: yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())["config"]["kubernetes:context"]
        for stack in ("dev", "prod")
    }

    assert contexts == {"dev": EMBEDDED_CONTEXT, "prod": "prod-admin"}


def test_a_cluster_that_cannot_be_asked_is_named() -> None:
    """Before anything is declared, also where the kubeconfig is the content itself."""
    document = {
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    arguments = parse_cluster({"context": "c", "kubeconfig": json.dumps(document)})

    with pytest.raises(SettingsError, match="kubernetes:context is 'c', and its cluster: "):
        check_service_monitors(arguments, "gpu-platform:workloads.serviceMonitors.enabled")
    missing = parse_cluster({"context": "other", "kubeconfig": json.dumps(document)})
    with pytest.raises(SettingsError, match="other"):
        check_service_monitors(missing, "gpu-platform:workloads.serviceMonitors.enabled")
