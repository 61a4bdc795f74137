"""The objects that the configuration comes to, as plain values."""

import os
import secrets
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from gpu_platform.cli.queue import build_secrets
from gpu_platform.devcluster.credentials import ensure_certificates, key_pair
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import KUBE_DNS
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.domain.tenants import KEYS_SECRET
from gpu_platform.nats.credentials import Keyring
from infra.components.api_configuration import ApiKey, build_keys
from infra.components.catalogue import StockPool, build_gpu_spec, build_stock_pool
from infra.components.definitions import build_priority_classes
from infra.components.namespaces import (
    ContainerDefaults,
    build_container_defaults,
    build_namespace,
    build_object_counts,
    build_quota,
)
from infra.components.nats import Nats, build_nats, nats_url, peer_hosts, render_configuration
from infra.components.processes import (
    API,
    RECONCILER,
    STACK_WORKER,
    HostedApiSettings,
    HostedReconcilerSettings,
    ServiceMonitors,
    Workloads,
    build_processes,
    render_settings,
)
from infra.components.workloads import build_service_monitors, build_workload, find_ignored_setting
from infra.field_types import Amounts
from platform_api.auth.keys import read_records
from platform_api.settings import load_api_settings
from reconciler.rbac import LEASE
from reconciler.settings import load_reconciler_settings
from tests.unit.infra.test_settings import read_stack

OWNER = "gpu-platform/dev"
IMAGE = "registry.example.com/gpu-platform:1.0"

STACKS = {"enabled": True, "settings": {"backend_url": "s3://stacks"}}


def workload_objects(nats: Nats | None = None, **settings: Any) -> dict[tuple[str, str], Json]:
    workloads = Workloads(enabled=True, image=IMAGE, **settings)
    processes = build_processes(workloads, nats or Nats())
    found = [body for process in processes for body in build_workload(process, workloads, nats or Nats())]
    return {(body["kind"], body["metadata"]["name"]): body for body in found}


def policy_of(app: str, nats: Nats | None = None, **settings: Any) -> Json:
    spec: Json = workload_objects(nats, **settings)["NetworkPolicy", app]["spec"]
    assert spec["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": app}}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    return spec


def test_the_platforms_pods_reach_dns_the_api_server_and_nats_and_the_api_also_tenants() -> None:
    nats = Nats(enabled=True, image="nats:2.12.2")
    tenants = {"to": [{"namespaceSelector": {"matchLabels": {"app.kubernetes.io/part-of": "gpu-platform"}}}]}
    api, reconciler = policy_of(API, nats), policy_of(RECONCILER, nats)
    dns, servers, queue = reconciler["egress"]
    assert dns == KUBE_DNS.to_rule()
    assert servers == {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]}
    assert queue["to"][0]["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "nats"}}
    assert api["egress"] == [dns, servers, queue, tenants]
    worker = policy_of(STACK_WORKER, nats, stack_worker=STACKS, network={"egress_ports": (443,)})
    assert worker["egress"] == [dns, {"ports": [{"protocol": "TCP", "port": 443}]}]
    assert policy_of(RECONCILER, Nats(url="tls://queue.example.com:4333"))["egress"][2] == {
        "ports": [{"protocol": "TCP", "port": 4333}]
    }


def test_the_api_is_open_and_metrics_only_to_the_namespaces_that_are_named() -> None:
    public = {"ports": [{"protocol": "TCP", "port": 8080}]}
    prometheus = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert policy_of(API)["ingress"] == [public, {"from": prometheus, "ports": [{"protocol": "TCP", "port": 9405}]}]
    assert policy_of(RECONCILER)["ingress"] == [{"from": prometheus, "ports": [{"protocol": "TCP", "port": 9401}]}]
    assert policy_of(API, network={"metrics_namespaces": ()})["ingress"] == [public]
    assert policy_of(RECONCILER, network={"metrics_namespaces": ()})["ingress"] == []


def test_nats_takes_clients_of_the_platform_and_calls_only_its_peers_and_dns() -> None:
    [policy] = [
        body["spec"]
        for body in build_nats(Nats(enabled=True, image="nats:2.12.2"), KUBE_DNS)
        if body["kind"] == "NetworkPolicy"
    ]
    servers = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "nats"}}}
    assert policy["egress"] == [KUBE_DNS.to_rule(), {"to": [servers], "ports": [{"protocol": "TCP", "port": 6222}]}]
    clients, routes = policy["ingress"]
    assert (clients["ports"][0]["port"], routes["from"]) == (4222, [servers])


def all_pods() -> list[Json]:
    nats = Nats(enabled=True, image="nats:2.12.2")
    bodies = [*workload_objects(nats).values(), *build_nats(nats, KUBE_DNS)]
    return [body["spec"]["template"]["spec"] for body in bodies if body["kind"] in ("Deployment", "StatefulSet")]


def test_what_a_stack_declares_says_whose_it_is() -> None:
    [(name, spec), *_] = read_stack("dev").gpu_specs.items()
    pool = StockPool(spec_name=name, replicas=3)

    assert build_gpu_spec(name, spec, OWNER)["metadata"]["annotations"] == {names.ANNOTATION_OWNER_STACK: OWNER}
    assert build_stock_pool("small", pool, OWNER) == {
        "apiVersion": names.API_VERSION,
        "kind": "StockPool",
        "metadata": {
            "name": "small",
            "namespace": names.STOCK_NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "gpu-platform", "app.kubernetes.io/managed-by": "pulumi"},
            "annotations": {names.ANNOTATION_OWNER_STACK: OWNER},
        },
        "spec": {"specName": name, "replicas": 3},
    }


def test_nothing_declared_is_taken_for_the_reconcilers() -> None:
    bodies = [*workload_objects().values(), build_namespace("a", "baseline"), *build_priority_classes()]

    assert all(body["metadata"]["labels"][names.LABEL_MANAGED_BY] != names.MANAGED_BY_VALUE for body in bodies)


def test_amounts_are_written_as_the_api_server_gives_them_back() -> None:
    quota = build_quota("a", {"requests.memory": "1024Gi", "pods": "10"})
    limits = build_container_defaults("a", ContainerDefaults())

    assert quota["spec"] == {"hard": {"requests.memory": "1Ti", "pods": "10"}}
    assert set(limits["spec"]["limits"][0]["default"]) == {"cpu", "memory"}


def test_the_counts_of_a_tenant_are_a_quota_of_their_own_in_the_form_of_the_api_server() -> None:
    """`2k` for 2000: as it is given back, so that nothing looks changed after a refresh."""
    counts = build_object_counts("a", TenantLimits(units=2_000, storages=1, functions=1, operations=10))
    assert counts["metadata"]["name"] != build_quota("a", {})["metadata"]["name"]
    assert counts["spec"]["hard"] == {
        "count/gpuunits.runtime.lokiwager.io": "2k",
        "count/gpustorages.runtime.lokiwager.io": "1",
        "count/gpufunctions.runtime.lokiwager.io": "1",
        "count/operations.runtime.lokiwager.io": "2012",
    }


def test_the_api_reads_the_settings_that_are_rendered_for_it(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(render_settings(HostedApiSettings(burst=7)))

    settings = load_api_settings(file, {})

    assert (settings.http_addr, settings.auth, settings.kube_mode) == ("0.0.0.0:8080", "keys", "required")
    assert (settings.metrics_address, settings.probe_address) == ("0.0.0.0:9405", "0.0.0.0:9406")
    assert settings.burst == 7


def test_the_reconciler_reads_the_settings_that_are_rendered_for_it(tmp_path: Path) -> None:
    file = tmp_path / "reconciler.yaml"
    file.write_text(render_settings(HostedReconcilerSettings(workers=3)))

    settings = load_reconciler_settings(file, {})

    assert (settings.lease_namespace, settings.lease_name) == (names.SYSTEM_NAMESPACE, LEASE)
    assert (settings.probe_address, settings.workers) == ("0.0.0.0:9402", 3)


def test_what_was_not_said_is_left_to_the_images_own_defaults() -> None:
    assert set(yaml.safe_load(render_settings(HostedApiSettings()))) == {
        *("httpAddr", "auth", "kubeMode", "metricsAddress", "probeAddress")
    }


def test_another_setting_is_another_config_map_and_another_pod() -> None:
    before = workload_objects()
    after = workload_objects(api={"settings": {"burst": 7}})

    def config_map_of(objects: dict[tuple[str, str], Json]) -> str:
        [volume, *_] = objects["Deployment", API]["spec"]["template"]["spec"]["volumes"]
        name: str = volume["configMap"]["name"]
        assert ("ConfigMap", name) in objects
        return name

    assert config_map_of(before) != config_map_of(after)


def test_services_and_budgets_find_the_pods_and_ports_of_their_process() -> None:
    objects = workload_objects()
    for (kind, name), deployment in objects.items():
        if kind != "Deployment":
            continue
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert objects["Service", name]["spec"]["selector"] == labels
        assert {port["targetPort"] for port in objects["Service", name]["spec"]["ports"]} <= set(ports)
        assert objects["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"] == labels
        assert all(container[probe]["httpGet"]["port"] in ports for probe in ("livenessProbe", "readinessProbe"))


@pytest.mark.parametrize("pod", all_pods(), ids=lambda pod: str(pod["containers"][0]["name"]))
def test_our_own_pods_have_no_more_than_they_need(pod: Json) -> None:
    [container] = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert not container["image"].endswith(":latest")


def test_every_process_has_listeners_of_its_own_for_probes_and_metrics() -> None:
    objects = workload_objects(stack_worker=STACKS)
    seen = set()
    for name in (API, RECONCILER, STACK_WORKER):
        [container] = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        offered = {port["name"]: port for port in objects["Service", name]["spec"]["ports"]}
        probes = [container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe", "startupProbe")]
        assert [(probe["port"], probe["path"]) for probe in probes] == [
            *(("probes", "/healthz"), ("probes", "/readyz"), ("probes", "/healthz"))
        ]
        assert (offered["metrics"]["targetPort"], offered["metrics"]["port"]) == ("metrics", ports["metrics"])
        assert "probes" not in offered
        seen |= {ports["metrics"], ports["probes"]}
    assert seen == {9401, 9402, 9403, 9404, 9405, 9406}
    [public, _] = objects["Service", API]["spec"]["ports"]
    assert public == {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}


def test_every_process_is_scraped_on_its_metrics_port_without_a_key() -> None:
    def monitored(stacks: Json | None = None, **settings: Any) -> dict[str, list[Json]]:
        workloads = Workloads.model_validate({"service_monitors": settings, "stack_worker": stacks or {}})
        monitors = build_service_monitors(workloads)
        return {monitor["metadata"]["name"]: monitor["spec"]["endpoints"] for monitor in monitors}

    endpoints = [{"port": "metrics", "path": "/metrics", "interval": "30s"}]
    assert monitored() == {}
    assert monitored(enabled=True) == {API: endpoints, RECONCILER: endpoints}
    assert monitored(STACKS, enabled=True) == {API: endpoints, RECONCILER: endpoints, STACK_WORKER: endpoints}
    assert monitored(enabled=True, api_key_secret="scraper") == {API: endpoints, RECONCILER: endpoints}  # noqa: S106


def test_the_key_of_an_earlier_release_for_scraping_is_ignored_with_a_warning() -> None:
    assert find_ignored_setting(Workloads()) is None
    warning = find_ignored_setting(Workloads(service_monitors=ServiceMonitors(api_key_secret="scraper")))  # noqa: S106
    assert warning is not None
    assert warning.startswith("workloads.serviceMonitors.apiKeySecret is 'scraper' and is ignored")


def test_the_api_reads_the_keys_that_the_stack_declares() -> None:
    key = ApiKey.model_validate({"sha256": "a" * 64, "tenant": "acme", "roles": ["editor"]})

    secret = build_keys({"abcdefgh": key})

    assert secret["metadata"]["name"] == KEYS_SECRET
    [(key_id, record)] = read_records(secret).items()
    assert (key_id, record.to_json()) == ("abcdefgh", key.to_json())


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_real_server_takes_our_configuration_of_nats(replicas: Literal[1, 3], tmp_path: Path) -> None:
    nats = Nats(enabled=True, image="nats:2.12.2", replicas=replicas)
    for name in ("users", "tls", "data", "pki"):
        (tmp_path / name).mkdir()
    keyring = Keyring.new(secrets.token_bytes)
    (tmp_path / "users" / "users.conf").write_text(keyring.render_server(datetime.now(UTC)))
    ensure_certificates(tmp_path / "pki", datetime.now(UTC))
    server, authority = key_pair(tmp_path / "pki", "server"), key_pair(tmp_path / "pki", "ca")
    for source, name in ((server.certificate, "tls.crt"), (server.key, "tls.key"), (authority.certificate, "ca.crt")):
        (tmp_path / "tls" / name).write_bytes(source.read_bytes())
    (tmp_path / "nats.conf").write_text(render_configuration(nats, str(tmp_path), str(tmp_path / "data")))

    verdict = subprocess.run(
        [str(Path(sys.executable).with_name("nats-server")), "-t", "-c", str(tmp_path / "nats.conf")],
        env={**os.environ, "POD_NAME": "nats-0"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert "is valid" in verdict.stdout + verdict.stderr


def settings_of(process: str, bodies: dict[tuple[str, str], Json], file: Path) -> Path:
    """As the process finds them."""
    [settings] = [body for (kind, name), body in bodies.items() if kind == "ConfigMap" and name.startswith(process)]
    [text] = settings["data"].values()
    file.write_text(text)
    return file


def mounted(process: str, bodies: dict[tuple[str, str], Json]) -> dict[str, str]:
    """The Secrets of a process, by where they are."""
    pod = bodies["Deployment", process]["spec"]["template"]["spec"]
    secret_of = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    mounts = pod["containers"][0]["volumeMounts"]
    return {each["mountPath"]: secret_of[each["name"]] for each in mounts if each["name"] in secret_of}


def test_where_there_is_no_nats_our_processes_are_told_of_none(tmp_path: Path) -> None:
    bodies = workload_objects()
    assert load_api_settings(settings_of(API, bodies, tmp_path / "api.yaml"), {}).nats_url is None
    reconciler = load_reconciler_settings(settings_of(RECONCILER, bodies, tmp_path / "reconciler.yaml"), {})
    assert (reconciler.nats_url, reconciler.accessor_image) == (None, IMAGE)
    assert (mounted(API, bodies), mounted(RECONCILER, bodies)) == ({}, {})


def test_our_processes_come_to_our_nats_with_what_its_secrets_hold(tmp_path: Path) -> None:
    bodies = workload_objects(Nats(enabled=True, image="nats:2.12.2", replicas=5))
    api = load_api_settings(settings_of(API, bodies, tmp_path / "api.yaml"), {})
    reconciler = load_reconciler_settings(settings_of(RECONCILER, bodies, tmp_path / "reconciler.yaml"), {})

    assert api.nats_url == reconciler.nats_url == nats_url()
    assert (reconciler.nats_replicas, reconciler.sidecar_image) == (3, IMAGE)
    assert reconciler.nats_egress_labels == ("app.kubernetes.io/name=nats",)
    held = build_secrets(Keyring.new(secrets.token_bytes), datetime.now(UTC))
    for process, files in (
        (API, [api.nats_credentials]),
        (
            RECONCILER,
            [reconciler.nats_credentials, reconciler.nats_signing_key, reconciler.nats_system_credentials],
        ),
    ):
        places = mounted(process, bodies)
        assert {file.name for file in files if file} == set(held[places[str(files[0] and files[0].parent)]])
    for settings, process in ((api, API), (reconciler, RECONCILER)):
        assert settings.nats_ca is not None
        assert mounted(process, bodies)[str(settings.nats_ca.parent)] == "nats-tls"


def test_of_the_servers_secret_our_processes_see_no_key() -> None:
    for pod in all_pods()[:2]:
        [volume] = [each for each in pod["volumes"] if each.get("secret", {}).get("secretName") == "nats-tls"]
        assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def test_without_the_secrets_of_nats_our_processes_start_all_the_same() -> None:
    for pod in all_pods()[:2]:
        volumes = [each["secret"] for each in pod["volumes"] if each["name"] in ("nats", "nats-ca")]
        assert [volume["optional"] for volume in volumes] == [True, True]


def test_a_nats_of_somebody_else_has_the_address_and_the_authority_that_are_said(tmp_path: Path) -> None:
    bodies = workload_objects(Nats(url="tls://nats.example.com:4222", api_secret="theirs"))  # noqa: S106
    api = load_api_settings(settings_of(API, bodies, tmp_path / "api.yaml"), {})
    assert (api.nats_url, api.nats_ca) == ("tls://nats.example.com:4222", None)
    assert list(mounted(API, bodies).values()) == ["theirs"]
    bodies = workload_objects(Nats(url="tls://nats.example.com:4222", ca_secret="believed"))  # noqa: S106
    assert sorted(mounted(API, bodies).values()) == ["believed", "nats-api"]


def test_nats_is_told_how_much_of_its_volume_and_its_container_it_may_take() -> None:
    lines = render_configuration(
        Nats(enabled=True, image="nats:2.12.2", storage="20Gi", resources=Amounts(cpu="1", memory="2Gi"))
    ).splitlines()
    assert f"  max_file_store: {18 << 30}" in lines
    assert f"  max_memory_store: {512 << 20}" in lines


@pytest.mark.parametrize(
    ("replicas", "path"), [(1, "/healthz"), (3, "/healthz?js-enabled-only=true"), (5, "/healthz?js-enabled-only=true")]
)
def test_a_server_of_nats_that_stores_nothing_any_more_is_restarted(replicas: Literal[1, 3, 5], path: str) -> None:
    """Of several, one switches JetStream off; a single one tells of the stream only where all are asked about."""
    [stateful] = [
        body
        for body in build_nats(Nats(enabled=True, image="nats:2.12.2", replicas=replicas), KUBE_DNS)
        if body["kind"] == "StatefulSet"
    ]
    [container] = stateful["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == path


def test_every_server_of_nats_knows_the_others() -> None:
    nats = Nats(enabled=True, image="nats:2.12.2", replicas=3)

    assert len(peer_hosts(nats)) == 3
    assert all(host in render_configuration(nats) for host in peer_hosts(nats))
