"""The stack's configuration: what is read, and the one sentence for what is wrong."""

import json
from typing import Any

import pulumi
import pytest
import yaml

from gpu_platform.domain.tenants import Role, build_key, find_undeclared, hash_secret
from infra.components.nats import Nats
from infra.field_types import Amounts
from infra.settings import PlatformSettings, parse_settings, with_administrator
from tests.architecture.repository import ROOT

PROJECT = "gpu-platform"
SPECS = {"g1.1": {"memory": "16Gi", "gpu": 1}}


def parse(**values: Any) -> PlatformSettings:
    """As Pulumi hands a configuration over: every value as text, sections as JSON."""
    return parse_settings(
        PROJECT, {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    )


def refusal(**values: Any) -> str:
    with pytest.raises(pulumi.RunError) as caught:
        parse(**values)
    return str(caught.value)


def read_stack(name: str) -> PlatformSettings:
    config = yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text())["config"]
    prefix = f"{PROJECT}:"
    return parse(
        **{
            key.removeprefix(prefix): str(value).lower() if isinstance(value, bool) else value
            for key, value in config.items()
            if key.startswith(prefix)
        }
    )


def test_only_the_environment_has_to_be_said() -> None:
    settings = parse(environment="dev")

    assert settings.protect
    assert not settings.workloads.enabled
    assert not settings.nats.enabled
    assert not settings.gpu_operator.enabled
    assert settings.namespaces.instance.profile == "baseline"


@pytest.mark.parametrize(
    ("section", "repository"),
    [
        ({}, "https://helm.ngc.nvidia.com/nvidia"),
        ({"repository": "https://charts.example.com"}, "https://charts.example.com"),
        ({"chart": "oci://registry.example.com/charts/gpu-operator"}, None),
        ({"chart": "./charts/gpu-operator"}, None),
        ({"chart": "/charts/gpu-operator"}, None),
    ],
    ids=["nvidia", "own", "oci", "local", "absolute"],
)
def test_only_a_chart_that_is_a_name_has_a_repository(section: dict[str, str], repository: str | None) -> None:
    assert parse(environment="dev", gpuOperator=section).gpu_operator.chart_repository == repository


def test_the_embedded_clusters_stack_switches_off_what_that_cluster_has_itself() -> None:
    settings = read_stack("dev")

    assert sorted(settings.gpu_specs) == ["g1.1", "host.1"]
    assert not settings.protect
    assert not any((settings.workloads.enabled, settings.nats.enabled, settings.gpu_operator.enabled))


def test_the_production_example_is_valid_and_shows_every_section() -> None:
    settings = read_stack("prod")
    text = (ROOT / "Pulumi.prod.yaml").read_text()

    assert settings.workloads.enabled
    assert settings.nats.enabled
    assert settings.gpu_operator.enabled
    for field in PlatformSettings.model_fields.values():
        assert f"{PROJECT}:{field.alias}:" in text


@pytest.mark.parametrize("section", ["gpu_operator", "nats", "workloads"])
def test_the_production_example_shows_every_setting_of_a_section(section: str) -> None:
    text = (ROOT / "Pulumi.prod.yaml").read_text()
    model = type(getattr(read_stack("prod"), section))

    assert [field.alias for field in model.model_fields.values() if f" {field.alias}:" not in text] == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"environment": "dev", "stockPool": {}}, "stockPool is no setting; did you mean stockPools?"),
        (
            {"environment": "dev", "nats": {"replica": 3}},
            "nats.replica is no setting; did you mean replicas?",
        ),
        (
            {"environment": "dev", "gpuSpecs": {"g1.1": {"memory": "16Gi", "gpu": 1, "gpuproduct": "H100"}}},
            "gpuSpecs.g1.1.gpuproduct is no setting; did you mean gpuProduct?",
        ),
        (
            {"environment": "dev", "workloads": {"api": {"settings": {"burts": 1}}}},
            "workloads.api.settings.burts is no setting; did you mean burst?",
        ),
        ({}, "environment is missing"),
        (
            {"environment": "No Label"},
            "environment is \"No Label\", and should match pattern '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'",
        ),
        ({"environment": "dev", "protect": "yes"}, "protect is 'yes', and should be true or false"),
        ({"environment": "dev", "nats": "on"}, "nats is 'on', and should be a section with keys of its own"),
        (
            {"environment": "dev", "gpuSpecs": {"g1.1": {"memory": "16Gx", "gpu": 1}}},
            "gpuSpecs.g1.1.memory: '16Gx' is not a quantity; write it like 16Gi, 500m or 2",
        ),
        (
            {"environment": "dev", "gpuSpecs": {"g1.1": {"memory": 16, "gpu": 1}}},
            "gpuSpecs.g1.1.memory is 16, and should be a valid string",
        ),
        (
            {"environment": "dev", "gpuSpecs": {"g1.1": {"memory": "0", "gpu": 1}}},
            "gpuSpecs.g1.1.memory: '0' must be more than zero",
        ),
        (
            {"environment": "dev", "tenants": {"acme": {"quota": {"pods": "-1"}}}},
            "tenants.acme.quota.pods: '-1' must not be less than zero",
        ),
        (
            {"environment": "dev", "tenants": {"acme": {"profile": "privileged"}}},
            "tenants.acme.profile is \"privileged\", and should be 'baseline' or 'restricted'",
        ),
        (
            {"environment": "dev", "tenants": {"default": {}}},
            "tenants.default is there already, as namespaces.instance",
        ),
        (
            {"environment": "dev", "gpuSpecs": SPECS, "stockPools": {"a": {"specName": "g2", "replicas": 1}}},
            "stockPools.a.specName is 'g2', and gpuSpecs has g1.1",
        ),
        (
            {"environment": "dev", "gpuSpecs": SPECS, "stockPools": {"a": {"specName": "g1.1", "replicas": -1}}},
            "stockPools.a.replicas is -1, and should be greater than or equal to 0",
        ),
        (
            {"environment": "dev", "stockPools": {"A": {"specName": "g1.1", "replicas": 1}}},
            "stockPools.A is no name that can be used there: "
            "string should match pattern '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$'",
        ),
        ({"environment": "dev", "workloads": {"enabled": True}}, "workloads: image is needed where enabled is true"),
        ({"environment": "dev", "nats": {"enabled": True}}, "nats: image is needed where enabled is true"),
        *(
            (
                {"environment": "dev", "nats": {"enabled": True, "image": "nats:2.12.2", "storage": storage}},
                f"nats: storage is '{storage}', of which JetStream may fill 90%, and the streams reserve 9Gi; "
                "write 10Gi or more",
            )
            for storage in ("5Gi", "10G", "10239Mi")
        ),
        (
            {
                "environment": "dev",
                "nats": {"enabled": True, "image": "nats:2.12.2", "resources": {"cpu": "1", "memory": "64Mi"}},
            },
            "nats: resources.memory is '64Mi', too little for the server and its indexes; write 256Mi or more",
        ),
        (
            {"environment": "dev", "gpuOperator": {"enabled": True}},
            "gpuOperator: version is needed where enabled is true",
        ),
        (
            {"environment": "dev", "gpuOperator": {"chart": "oci://a.example/b", "repository": "https://a.example"}},
            "gpuOperator: repository is for a chart that is a name; 'oci://a.example/b' has none, so remove it",
        ),
        ({"environment": "dev", "nats": {"replicas": 2}}, "nats.replicas is 2, and should be 1, 3 or 5"),
        (
            {"environment": "dev", "workloads": {"api": {"settings": {"auth": "none"}}}},
            "workloads.api.settings.auth is \"none\", and should be 'keys'",
        ),
        (
            {"environment": "dev", "workloads": {"reconciler": {"settings": {"leaseName": "other"}}}},
            "workloads.reconciler.settings.leaseName is \"other\", and should be 'gpu-platform-reconciler'",
        ),
        (
            {"environment": "dev", "workloads": {"reconciler": {"settings": {"routeKind": "Ingress"}}}},
            "workloads.reconciler.settings: routeKind is set, but routeDomain is not: "
            "say below which domain the units' hosts are",
        ),
        (
            {"environment": "dev", "apiKeys": {"abcdefgh": {"sha256": "0" * 64, "tenant": "b", "roles": ["viewer"]}}},
            "apiKeys.abcdefgh.tenant is 'b', and there are default",
        ),
    ],
)
def test_a_wrong_configuration_is_one_sentence_that_names_the_key(values: dict[str, Any], sentence: str) -> None:
    assert refusal(**values) == f"{PROJECT}:{sentence}"


@pytest.mark.parametrize(
    "image", ["web", "web:latest", "registry:5000/web", "registry.example.com/web:latest", "web@sha256:abc", "web:a b"]
)
def test_an_image_that_is_not_one_version_is_refused(image: str) -> None:
    assert "does not name one version" in refusal(environment="dev", workloads={"image": image})


@pytest.mark.parametrize(
    "image", ["web:1.0", "registry:5000/team/web:1.0-rc.1", f"registry.example.com/web@sha256:{'a' * 64}"]
)
def test_an_image_of_one_version_is_accepted(image: str) -> None:
    assert parse(environment="dev", workloads={"image": image}).workloads.image == image


def test_a_key_in_clear_has_no_place() -> None:
    key = {"sha256": "0" * 64, "tenant": "default", "roles": ["viewer"], "key": "gk_abcdefgh_secret"}

    sentence = refusal(environment="dev", apiKeys={"abcdefgh": key})

    assert sentence.startswith("gpu-platform:apiKeys.abcdefgh.key is no setting")
    assert "secret" not in sentence


def test_an_encrypted_section_is_not_shown() -> None:
    values = {"environment": "dev", "gpuOperator": json.dumps({"version": "hunter2"})}
    before = pulumi.runtime.config.CONFIG.get(), pulumi.runtime.config._SECRET_KEYS.get()
    try:
        pulumi.runtime.set_all_config({}, [f"{PROJECT}:gpuOperator"])
        with pytest.raises(pulumi.RunError) as caught:
            parse_settings(PROJECT, values)
    finally:
        pulumi.runtime.set_all_config(before[0], list(before[1]))

    assert "gpuOperator.version is a secret" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_administrators_key_comes_out_of_the_environment_as_a_hash() -> None:
    other = {"sha256": "0" * 64, "tenant": "default", "roles": ["viewer"]}
    settings = parse(environment="dev", administratorKeyFrom="ADMIN", apiKeys={"abcdefgh": other})

    keys = with_administrator(PROJECT, settings, {"ADMIN": build_key("devkey01", "s" * 43)}).api_keys

    assert sorted(keys) == ["abcdefgh", "devkey01"]
    assert keys["devkey01"].sha256 == hash_secret("s" * 43)
    assert (keys["devkey01"].tenant, keys["devkey01"].roles) == ("default", (Role.ADMIN,))
    assert keys["devkey01"].platform is True


def test_a_tenants_key_with_a_platform_role_is_refused_and_an_undeclared_one_is_not() -> None:
    key = {"sha256": "0" * 64, "tenant": "default", "roles": ["operator", "viewer"]}

    assert find_undeclared(parse(environment="dev", apiKeys={"abcdefgh": key}).api_keys) == ("abcdefgh",)
    assert parse(environment="dev", apiKeys={"abcdefgh": {**key, "platform": True}}).api_keys["abcdefgh"].platform
    with pytest.raises(pulumi.RunError) as caught:
        parse(environment="dev", apiKeys={"abcdefgh": {**key, "platform": False}})

    assert "apiKeys.abcdefgh.roles has operator, and apiKeys.abcdefgh.platform is false" in str(caught.value)
    assert "write platform: true" in str(caught.value)


@pytest.mark.parametrize("environment", [{}, {"ADMIN": ""}, {"ADMIN": "hunter2"}])
def test_an_administrators_key_that_is_none_is_one_sentence_that_does_not_show_it(environment: dict[str, str]) -> None:
    settings = parse(environment="dev", administratorKeyFrom="ADMIN")

    with pytest.raises(pulumi.RunError) as caught:
        with_administrator(PROJECT, settings, environment)

    assert str(caught.value).startswith(
        "gpu-platform:administratorKeyFrom is 'ADMIN', and that environment variable holds no API key"
    )
    assert "hunter2" not in str(caught.value)


def test_without_an_administrators_key_the_environment_is_not_asked() -> None:
    settings = parse(environment="dev")

    assert with_administrator(PROJECT, settings, {"GPU_PLATFORM_KEY": build_key("devkey01", "s" * 43)}) is settings


def test_sizes_of_nats_do_not_matter_where_it_is_off() -> None:
    assert not Nats(storage="1Gi", resources=Amounts(cpu="1", memory="1Mi")).enabled
    assert Nats(enabled=True, image="nats:2.12.2", storage="10Gi").stored_bytes == 9 << 30
