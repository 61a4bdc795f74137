"""The embedded cluster's values: sizes, ports, environment, processes, certificates."""

import json
import os
import socket
import ssl
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster import record as ports
from gpu_platform.devcluster.configuration import (
    OWN_PLUGIN,
    STAND_IN,
    cluster_environment,
    shell_exports,
    write_configuration,
)
from gpu_platform.devcluster.credentials import (
    IDENTITIES,
    credentials_file,
    ensure_certificates,
    ensure_identities,
    key_pair,
    signing_key_file,
)
from gpu_platform.devcluster.definitions import URN, field_manager
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.processes import STACK, HttpReady, plan_processes
from gpu_platform.devcluster.pulumi_kubernetes.state import field_manager_name
from gpu_platform.devcluster.record import (
    LOOPBACK,
    OURS,
    PORT_NAMES,
    ClusterRecord,
    close_all,
    find_record,
    get_record,
    reserve_ports,
    save_record,
)
from gpu_platform.devcluster.simulated_nodes import MODELS, plan_nodes
from gpu_platform.domain.quantities import parse_quantity
from gpu_platform.domain.specs import DEFAULT_EPHEMERAL_STORAGE
from gpu_platform.nats.credentials import parse_credentials, read_claims
from gpu_platform.nats.permissions import QueueUser
from infra.program import PROJECT
from platform_api.settings import load_api_settings
from reconciler.settings import load_reconciler_settings

NOW = datetime(2030, 1, 1, tzinfo=UTC)
PATH = "/usr/bin:/bin"
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "nats-server")


@pytest.fixture
def record() -> ClusterRecord:
    return replace(
        ClusterRecord.new(),
        ports={name: 20_000 + index for index, name in enumerate(PORT_NAMES)},
        binaries={name: f"/parts/{name}" for name in BINARIES},
        path_entries=("/parts",),
    )


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    directory = ClusterDirectory(tmp_path)
    directory.create()
    return directory


def test_models_take_turns_and_names_do_not_depend_on_the_number_of_nodes() -> None:
    five = [node["metadata"]["name"] for node in plan_nodes(5, 8)]
    assert five == ["sim-h100-0", "sim-a100-0", "sim-l40s-0", "sim-t4-0", "sim-h100-1"]
    assert [node["metadata"]["name"] for node in plan_nodes(2, 8)] == five[:2]
    assert len({node["metadata"]["labels"]["nvidia.com/gpu.product"] for node in plan_nodes(5, 8)}) == len(MODELS)


def test_a_simulated_node_has_disk_for_as_many_units_as_pods() -> None:
    [node] = plan_nodes(1, 8)
    capacity = {name: parse_quantity(amount) for name, amount in node["status"]["capacity"].items()}
    assert capacity["ephemeral-storage"] > capacity["pods"] * parse_quantity(DEFAULT_EPHEMERAL_STORAGE)


def choose_ports(recorded: dict[str, int]) -> dict[str, int]:
    reserved = reserve_ports(recorded)
    chosen = {name: each.getsockname()[1] for name, each in reserved.items()}
    close_all(reserved)
    return chosen


def test_a_free_recorded_port_is_kept_and_a_taken_one_is_replaced() -> None:
    first = choose_ports({})
    assert len(set(first.values())) == len(PORT_NAMES)
    assert all(port in OURS for port in first.values())
    with socket.socket() as taken:
        taken.bind((LOOPBACK, first["nats"]))
        taken.listen()
        second = choose_ports(first)
    assert second.pop("nats") != first.pop("nats")
    assert second == first


def test_a_record_of_an_earlier_release_gets_the_ports_that_it_lacks_and_keeps_the_others(
    directory: ClusterDirectory, record: ClusterRecord
) -> None:
    new = {"api-metrics", "api-probes"}
    before = {name: port for name, port in choose_ports({}).items() if name not in new}
    save_record(directory, replace(record, ports=before))
    found = get_record(directory)
    # Until it is started again, as `dev env` and `dev status` see it.
    assert "GPU_PLATFORM_METRICS_URL" not in cluster_environment(directory, found, PATH)

    after = choose_ports(dict(found.ports))
    assert after.keys() - before.keys() == new
    assert {name: after[name] for name in before} == before
    started = replace(found, ports=after)
    [api] = [spec for spec in plan_processes(directory, started, PATH) if spec.name == "api"]
    assert api.ready == HttpReady(f"http://{LOOPBACK}:{after['api-probes']}/readyz")
    assert api.environment["GPU_PLATFORM_API_METRICS_ADDRESS"] == f"{LOOPBACK}:{after['api-metrics']}"
    variables = cluster_environment(directory, started, PATH)
    assert variables["GPU_PLATFORM_METRICS_URL"] == f"http://{LOOPBACK}:{after['api-metrics']}"
    assert variables["GPU_PLATFORM_PROBE_URL"] == f"http://{LOOPBACK}:{after['api-probes']}"


def test_a_reserved_port_is_chosen_by_nothing_else_and_its_server_listens_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while that server is restarted: its port is free then, but not for others."""
    reserved = reserve_ports({})
    port = reserved["nats"].getsockname()[1]
    monkeypatch.setattr(ports, "OURS", range(port, port + 1))
    for _ in range(2):
        with pytest.raises(DevClusterError, match="is free"):
            reserve_ports({})
        with socket.create_server((LOOPBACK, port)) as server:
            assert server.getsockname()[1] == port
    close_all(reserved)


def test_a_record_is_read_back_as_it_was_written(directory: ClusterDirectory, record: ClusterRecord) -> None:
    save_record(directory, record)
    assert find_record(directory) == record
    assert directory.record.stat().st_mode & 0o077 == 0


def test_a_broken_record_is_refused_with_the_way_out(directory: ClusterDirectory) -> None:
    directory.record.write_text('{"id": "x"}')
    with pytest.raises(DevClusterError, match=r"remove .* to start with an empty cluster"):
        get_record(directory)


def test_a_record_with_a_password_for_nats_is_still_read(directory: ClusterDirectory, record: ClusterRecord) -> None:
    save_record(directory, record)
    fields = json.loads(directory.record.read_text())
    directory.record.write_text(json.dumps({**fields, "nats_password": "of before"}))
    assert find_record(directory) == record


def test_unsaid_sizes_stay_as_they_were(record: ClusterRecord) -> None:
    resized = record.sized(7, None)
    assert (resized.nodes, resized.gpus) == (7, record.gpus)


def test_environment_puts_our_tools_first_and_only_once(directory: ClusterDirectory, record: ClusterRecord) -> None:
    once = cluster_environment(directory, record, os.pathsep.join(["/usr/bin", "/bin"]))
    twice = cluster_environment(directory, record, once["PATH"])
    assert once == twice
    ours = [str(Path(sys.executable).parent), str(OWN_PLUGIN), "/parts", str(STAND_IN)]
    assert once["PATH"].split(os.pathsep) == [*ours, "/usr/bin", "/bin"]


def test_exports_are_safe_for_a_shell() -> None:
    assert shell_exports({"A": "it's $HOME"}) == "export A='it'\"'\"'s $HOME'"


def test_every_process_comes_after_those_it_needs(directory: ClusterDirectory, record: ClusterRecord) -> None:
    seen: set[str] = set()
    for spec in plan_processes(directory, record, PATH):
        assert set(spec.after) <= seen
        seen.add(spec.name)


@pytest.mark.parametrize("path", [PATH, f"{PATH}:{Path(sys.executable).parent}"])
def test_python3_on_the_host_node_is_the_one_of_the_platform_whatever_path_the_cluster_was_started_with(
    directory: ClusterDirectory, record: ClusterRecord, path: str
) -> None:
    [host_node] = [spec for spec in plan_processes(directory, record, path) if spec.name == "host-node"]
    assert host_node.environment["PATH"] == f"{Path(sys.executable).parent}:{PATH}"


def test_a_bare_cluster_has_no_process_of_the_platform(directory: ClusterDirectory, record: ClusterRecord) -> None:
    names = {spec.name for spec in plan_processes(directory, replace(record, platform=False), PATH)}
    platform = {"bootstrap", "reconciler", "api", "stack-worker"}
    assert names == {spec.name for spec in plan_processes(directory, record, PATH)} - platform


@pytest.mark.parametrize("platform", [True, False])
def test_the_controller_manager_of_a_platform_starts_once_our_kinds_exist(
    directory: ClusterDirectory, record: ClusterRecord, platform: bool
) -> None:
    specs = plan_processes(directory, replace(record, platform=platform), PATH)
    assert [spec.name for spec in specs if spec.needs_definitions] == ["kube-controller-manager"] * platform


def test_the_bootstrap_owns_the_definitions_that_the_cluster_starts_with() -> None:
    urn = f"{URN}gpuunits.runtime.lokiwager.io"
    assert f"urn:pulumi:{STACK}::{PROJECT}::" in urn
    assert field_manager("gpuunits.runtime.lokiwager.io") == field_manager_name(urn)


def test_the_stack_worker_can_be_left_out(directory: ClusterDirectory, record: ClusterRecord) -> None:
    names = {spec.name for spec in plan_processes(directory, replace(record, stack_worker=False), PATH)}
    assert names == {spec.name for spec in plan_processes(directory, record, PATH)} - {"stack-worker"}


def test_no_process_listens_beyond_loopback(directory: ClusterDirectory, record: ClusterRecord) -> None:
    words = [word for spec in plan_processes(directory, record, PATH) for word in spec.argv]
    assert not [word for word in words if "0.0.0.0" in word and "10.0.0.0/16" not in word]  # noqa: S104
    assert [word for word in words if word.startswith("--bind-address=")] == [f"--bind-address={LOOPBACK}"] * 3


def test_the_authority_lasts_and_the_leaves_are_new_at_every_start(directory: ClusterDirectory) -> None:
    ensure_certificates(directory.pki, NOW)
    authority, server = (key_pair(directory.pki, name).certificate.read_bytes() for name in ("ca", "server"))
    ensure_certificates(directory.pki, NOW + timedelta(days=300))
    assert key_pair(directory.pki, "ca").certificate.read_bytes() == authority
    assert key_pair(directory.pki, "server").certificate.read_bytes() != server


def test_who_is_who_in_nats_lasts_and_the_credentials_are_new_at_every_start(directory: ClusterDirectory) -> None:
    first = ensure_identities(directory, NOW)
    files = [credentials_file(directory, user) for user in QueueUser]
    before = [parse_credentials(file.read_text()) for file in files]
    assert ensure_identities(directory, NOW + timedelta(days=300)) == first
    after = [parse_credentials(file.read_text()) for file in files]

    assert [each.seed for each in after] == [each.seed for each in before]
    assert not {each.token for each in after} & {each.token for each in before}
    assert signing_key_file(directory).read_text() == f"{first.workers}\n"
    assert not [file for file in directory.nats_identity.iterdir() if file.stat().st_mode & 0o077]


def test_broken_keys_of_nats_are_refused_with_the_way_out(directory: ClusterDirectory) -> None:
    (directory.nats_identity / "keys.json").write_text("{}")
    with pytest.raises(DevClusterError, match=r"keys\.json cannot be used: .*; without it, new keys are made"):
        ensure_identities(directory, NOW)


def test_each_process_has_its_own_credentials_of_nats(directory: ClusterDirectory, record: ClusterRecord) -> None:
    write_configuration(directory, record, NOW)
    specs = {spec.name: spec for spec in plan_processes(directory, record, PATH)}
    api, reconciler = specs["api"], specs["reconciler"]
    assert "nats-server" in api.after
    assert "nats-server" in reconciler.after
    shown = {
        name: parse_credentials(Path(path).read_text())
        for spec in (api, reconciler)
        for name, path in spec.environment.items()
        if name.endswith("_CREDENTIALS")
    }
    names = {name: read_claims(credentials.token)["name"] for name, credentials in shown.items()}
    assert names == {
        "GPU_PLATFORM_API_NATS_CREDENTIALS": "api",
        "GPU_PLATFORM_RECONCILER_NATS_CREDENTIALS": "functions",
        "GPU_PLATFORM_RECONCILER_NATS_SYSTEM_CREDENTIALS": "system",
    }
    load_api_settings(None, api.environment)
    load_reconciler_settings(None, reconciler.environment)


def test_every_leaf_is_accepted_by_a_strict_verifier_and_its_key_is_private(directory: ClusterDirectory) -> None:
    ensure_certificates(directory.pki, datetime.now(UTC))
    context = ssl.create_default_context(cafile=key_pair(directory.pki, "ca").certificate)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    for identity in IDENTITIES:
        pair = key_pair(directory.pki, identity.file)
        context.load_cert_chain(pair.certificate, pair.key)
        assert pair.key.stat().st_mode & 0o077 == 0
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        certificate.verify_directly_issued_by(
            x509.load_pem_x509_certificate(key_pair(directory.pki, "ca").certificate.read_bytes())
        )
