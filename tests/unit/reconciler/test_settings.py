"""The reconciler's settings: defaults, then the file, then the environment; and one clear sentence when wrong."""

from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import yaml

from gpu_platform.controller.leader_election import LeaseTiming
from gpu_platform.domain.invocation_plan import QUEUE_GRACE
from gpu_platform.domain.operations import ACCEPT_SECONDS, TAKEOVER
from gpu_platform.kube.informer import WatchTiming
from gpu_platform.settings import SettingsError, split_address
from reconciler.orphans.plan import OrphanLimits
from reconciler.settings import ReconcilerSettings, load_reconciler_settings
from tests.architecture.repository import ROOT

ROUTE = "routeDomain: example.com\nrouteFromNamespace: ingress"
SAMPLE = ROOT / "config" / "local" / "reconciler.yaml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "reconciler.yaml"


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_without_anything_there_are_defaults() -> None:
    settings = load_reconciler_settings(None, {})

    assert settings == ReconcilerSettings()
    assert settings.leader_elect
    assert settings.controllers == ("units", "storages", "stock", "operations", "orphans", "drift", "functions")
    assert settings.resync_seconds == 300
    assert WatchTiming(seconds(settings.resync_seconds), seconds(settings.watch_seconds)) == WatchTiming()
    assert LeaseTiming.lasting(seconds(settings.lease_seconds)) == LeaseTiming()
    assert seconds(settings.operation_takeover_seconds) == TAKEOVER > seconds(ACCEPT_SECONDS)
    limits = OrphanLimits(seconds(settings.claim_limit_seconds), seconds(settings.orphan_limit_seconds))
    assert limits == OrphanLimits()
    assert seconds(settings.queue_grace_seconds) == QUEUE_GRACE
    blocked = [ip_network(cidr) for cidr in settings.blocked_egress_cidrs]
    for metadata_service in ("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "fe80::a9fe:a9fe"):
        assert any(ip_address(metadata_service) in network for network in blocked)


def test_the_file_comes_over_the_defaults_and_the_environment_over_both(file: Path) -> None:
    file.write_text("workers: 3\nleaseName: from-file\ncontrollers: [stock]\nkubeconfig: some/where\n")
    environment = {"GPU_PLATFORM_RECONCILER_LEASE_NAME": "from-environment", "PATH": "/bin"}

    settings = load_reconciler_settings(file, environment)

    assert (settings.workers, settings.lease_name, settings.controllers) == (3, "from-environment", ("stock",))
    assert settings.kubeconfig == Path("some/where")


def test_every_setting_can_come_from_the_environment() -> None:
    environment = {
        "LEADER_ELECT": "false",
        "LEASE_NAMESPACE": "ns",
        "LEASE_NAME": "name",
        "METRICS_ADDRESS": "0.0.0.0:1",
        "PROBE_ADDRESS": "[::1]:0",
        "RESYNC_SECONDS": "60",
        "CONTROLLERS": "units, orphans",
        "WORKERS": "16",
        "BLOCKED_EGRESS_CIDRS": "10.0.0.0/8,fd00::/8",
        "DNS_NAMESPACE": "openshift-dns",
        "DNS_LABELS": "dns.operator.openshift.io/daemonset-dns=default",
        "DNS_PORT": "5353",
        "PLACEHOLDER_IMAGE": "image:1",
        "SSH_SERVER_IMAGE": "image:3",
        "FRP_CLIENT_IMAGE": "image:4",
        "SSH_SERVER_CIDRS": "10.9.0.0/16",
        "ROUTE_KIND": "Ingress",
        "ROUTE_DOMAIN": "units.example.com",
        "ROUTE_SCHEME": "http",
        "ROUTE_CLASS": "nginx",
        "ROUTE_ANNOTATIONS": "example.com/timeout=1h,example.com/size=1g",
        "ROUTE_FROM_NAMESPACE": "ingress-nginx",
        "ROUTE_FROM_LABELS": "app=controller",
        "NATS_URL": "tls://nats:4222",
        "NATS_CREDENTIALS": "functions.creds",
        "NATS_CA": "ca.crt",
        "NATS_SIGNING_KEY": "signing.key",
        "NATS_SYSTEM_CREDENTIALS": "system.creds",
        "NATS_REPLICAS": "3",
        "NATS_WORKERS_URL": "tls://nats.queue.svc:4222",
        "NATS_EGRESS_NAMESPACE": "queue",
        "NATS_EGRESS_LABELS": "app=nats, app.kubernetes.io/part-of=queue",
        "RESULT_RETENTION_SECONDS": "60",
        "SIDECAR_IMAGE": "image:2",
        "SIDECAR_COMMAND": "/venv/python,-m,serverless.sidecar",
        "WORKER_GRACE_SECONDS": "30",
        "STORAGE_CLASS": "fast",
        "STORAGE_NODE_SELECTOR": "disk=fast",
        "STORAGE_TOLERATIONS": "storage,disk=fast:NoSchedule",
        "COPY_IMAGE": "image:3",
        "ACCESSOR_IMAGE": "image:4",
        "ACCESSOR_COMMAND": "dufs,/data",
        "LEASE_SECONDS": "6",
        "WATCH_SECONDS": "5",
        "OPERATION_TAKEOVER_SECONDS": "4",
        "CLAIM_LIMIT_SECONDS": "3",
        "ORPHAN_LIMIT_SECONDS": "2",
        "QUEUE_GRACE_SECONDS": "1",
        "KUBECONFIG": "file",
        "LOG_LEVEL": "debug",
    }

    settings = load_reconciler_settings(
        None, {f"GPU_PLATFORM_RECONCILER_{key}": value for key, value in environment.items()}
    )

    assert settings == ReconcilerSettings(
        leader_elect=False,
        lease_namespace="ns",
        lease_name="name",
        metrics_address="0.0.0.0:1",
        probe_address="[::1]:0",
        lease_seconds=6,
        watch_seconds=5,
        operation_takeover_seconds=4,
        claim_limit_seconds=3,
        orphan_limit_seconds=2,
        queue_grace_seconds=1,
        resync_seconds=60,
        controllers=("units", "orphans"),
        workers=16,
        blocked_egress_cidrs=("10.0.0.0/8", "fd00::/8"),
        dns_namespace="openshift-dns",
        dns_labels=("dns.operator.openshift.io/daemonset-dns=default",),
        dns_port=5353,
        placeholder_image="image:1",
        ssh_server_image="image:3",
        frp_client_image="image:4",
        ssh_server_cidrs=("10.9.0.0/16",),
        route_kind="Ingress",
        route_domain="units.example.com",
        route_scheme="http",
        route_class="nginx",
        route_annotations=("example.com/timeout=1h", "example.com/size=1g"),
        route_from_namespace="ingress-nginx",
        route_from_labels=("app=controller",),
        nats_url="tls://nats:4222",
        nats_credentials=Path("functions.creds"),
        nats_ca=Path("ca.crt"),
        nats_signing_key=Path("signing.key"),
        nats_system_credentials=Path("system.creds"),
        nats_replicas=3,
        nats_workers_url="tls://nats.queue.svc:4222",
        nats_egress_namespace="queue",
        nats_egress_labels=("app=nats", "app.kubernetes.io/part-of=queue"),
        result_retention_seconds=60,
        sidecar_image="image:2",
        sidecar_command=("/venv/python", "-m", "serverless.sidecar"),
        worker_grace_seconds=30,
        storage_class="fast",
        storage_node_selector=("disk=fast",),
        storage_tolerations=("storage", "disk=fast:NoSchedule"),
        copy_image="image:3",
        accessor_image="image:4",
        accessor_command=("dufs", "/data"),
        kubeconfig=Path("file"),
        log_level="debug",
    )
    # Of the two ways to say where NATS is, one can be used, and of the two kinds of routes.
    others = {"nats_egress_cidr", "route_gateway"}
    assert {key.lower() for key in environment} == set(ReconcilerSettings.model_fields) - others


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("natsCredentials: x", "natsCredentials is set, but natsURL is not"),
        ("natsEgressLabels: [app=nats]", "natsEgressLabels is set, but natsURL is not"),
        (
            "natsURL: nats://n\nnatsEgressLabels: [app=nats]\nnatsEgressCIDR: 10.0.0.0/8",
            "natsEgressLabels and natsEgressCIDR are both set",
        ),
        ("natsURL: nats://n\nnatsSigningKey: x", "natsSigningKey is set, but natsCredentials is not"),
        ("natsURL: nats://n\nnatsCredentials: x", "natsCredentials is set, but natsSigningKey is not"),
        ("routeDomain: example.com", "routeDomain is set, but routeKind is not"),
        ("routeFromLabels: [app=x]", "routeFromLabels is set, but routeKind is not"),
        ("routeKind: Ingress", "routeKind is set, but routeDomain is not"),
        ("routeKind: Ingress\nrouteDomain: example.com", "routeKind is set, but routeFromNamespace is not"),
        (f"{ROUTE}\nrouteKind: HTTPRoute", "routeKind is HTTPRoute, but routeGateway is not set"),
        (
            f"{ROUTE}\nrouteKind: HTTPRoute\nrouteGateway: a/b\nrouteClass: x",
            "routeClass is set, but routeKind is HTTPRoute",
        ),
        (f"{ROUTE}\nrouteKind: Ingress", "routeKind is Ingress, but routeClass is not set"),
        (
            f"{ROUTE}\nrouteKind: Ingress\nrouteClass: x\nrouteGateway: a/b",
            "routeGateway is set, but routeKind is Ingress",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_one_sentence(text: str, sentence: str, file: Path) -> None:
    file.write_text(text + "\n")

    with pytest.raises(SettingsError) as caught:
        load_reconciler_settings(file, {})

    assert str(caught.value).startswith(sentence)


def test_a_reconciler_without_functions_needs_no_signing_key(file: Path) -> None:
    file.write_text("controllers: [units]\nnatsURL: nats://n\nnatsCredentials: x\n")

    assert load_reconciler_settings(file, {}).nats_url == "nats://n"


def test_an_empty_list_can_be_said(file: Path) -> None:
    file.write_text("blockedEgressCIDRs: []\n")

    assert load_reconciler_settings(file, {}).blocked_egress_cidrs == ()
    environment = {"GPU_PLATFORM_RECONCILER_CONTROLLERS": ""}
    assert load_reconciler_settings(None, environment).controllers == ()


def test_the_variables_that_kubernetes_adds_for_a_service_of_our_name_are_not_settings() -> None:
    prefix = "GPU_PLATFORM_RECONCILER_"
    links = {
        f"{prefix}SERVICE_HOST": "10.0.0.7",
        f"{prefix}SERVICE_PORT": "9401",
        f"{prefix}SERVICE_PORT_METRICS": "9401",
        f"{prefix}PORT": "tcp://10.0.0.7:9401",
        f"{prefix}PORT_9401_TCP_ADDR": "10.0.0.7",
    }

    assert load_reconciler_settings(None, links) == ReconcilerSettings()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("workers: 0", "{file}: workers is 0, and should be greater than or equal to 1"),
        ("workers: '8'", '{file}: workers is "8", and should be a valid integer'),
        ("workers: true", "{file}: workers is true, and should be a valid integer"),
        ("leaderElect: 'yes'", '{file}: leaderElect is "yes", and should be a valid boolean'),
        ("resyncSeconds: 1", "{file}: resyncSeconds is 1, and should be greater than or equal to 10"),
        ("leaseName: ''", '{file}: leaseName is "", and should have at least 1 character'),
        ("wokers: 8", "{file}: there is no setting 'wokers'; did you mean workers?"),
        ("lease_name: x", "{file}: there is no setting 'lease_name'; did you mean leaseName?"),
        ("zzz: 1", "{file}: there is no setting 'zzz'; there are: accessorCommand, accessorImage, "),
        (
            "controllers: [units, uints]",
            "{file}: controllers[1] is \"uints\", and should be 'units', 'storages', 'stock', 'operations', 'orphans'",
        ),
        (
            "metricsAddress: '9401'",
            '{file}: metricsAddress is "9401", and should be host:port, for example 127.0.0.1:9401',
        ),
        (
            "blockedEgressCIDRs: [10.0.0.1/8]",
            '{file}: blockedEgressCIDRs[0] is "10.0.0.1/8", and should be a network such as 10.0.0.0/8',
        ),
        (
            "routeDomain: '*.example.com'",
            '{file}: routeDomain is "*.example.com", and should be a domain such as units.example.com',
        ),
        ("routeGateway: public", '{file}: routeGateway is "public", and should be namespace/name of a Gateway'),
        ("routeAnnotations: [timeout]", '{file}: routeAnnotations[0] is "timeout", and should be name=value'),
        ("- workers", "{file} should hold one `key: value` per line, not a list"),
        ("workers: [", "{file} is not YAML: while parsing"),
    ],
)
def test_a_bad_file_is_one_sentence_with_place_key_and_fix(text: str, sentence: str, file: Path) -> None:
    file.write_text(text + "\n")

    with pytest.raises(SettingsError) as caught:
        load_reconciler_settings(file, {})

    assert str(caught.value).startswith(sentence.format(file=file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("WORKERS", "many", 'WORKERS: workers is "many", and should be a valid integer'),
        ("WORKERS", "0", 'WORKERS: workers is "0", and should be greater than or equal to 1'),
        ("LEADER_ELECT", "maybe", 'LEADER_ELECT: leaderElect is "maybe", and should be a valid boolean'),
        (
            "CONTROLLERS",
            "units,x",
            "CONTROLLERS: controllers[1] is \"x\", and should be 'units', 'storages', 'stock', 'operations', 'orphans'",
        ),
        (
            "BLOCKED_EGRESS_CIDRS",
            "ten",
            'BLOCKED_EGRESS_CIDRS: blockedEgressCIDRs[0] is "ten", and should be a net',
        ),
        ("WORKER", "8", "WORKER: there is no such setting; did you mean GPU_PLATFORM_RECONCILER_WORKERS?"),
    ],
)
def test_a_bad_variable_is_one_sentence_with_its_name(variable: str, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_reconciler_settings(None, {f"GPU_PLATFORM_RECONCILER_{variable}": text})

    assert str(caught.value).startswith(f"GPU_PLATFORM_RECONCILER_{sentence}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_sentence(file: Path) -> None:
    with pytest.raises(SettingsError, match=r"reconciler\.yaml cannot be read: No such file"):
        load_reconciler_settings(file, {})


def test_the_sample_shows_every_key_with_its_default() -> None:
    shown = yaml.safe_load(SAMPLE.read_text())

    assert set(shown) == {field.alias for field in ReconcilerSettings.model_fields.values()}
    assert load_reconciler_settings(SAMPLE, {}) == ReconcilerSettings()


@pytest.mark.parametrize(
    ("text", "address"), [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::]:0", ("::", 0)), ("name:1", ("name", 1))]
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["", ":80", "host", "host:", "host:x", "host:65536", "::1:80", "host:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="should be host:port"):
        split_address(text)
