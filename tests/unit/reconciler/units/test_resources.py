"""What a unit's objects look like: the seed's contract, without its defects."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.specs import Toleration
from infra.component import app_labels
from infra.components.processes import API
from reconciler.isolation import ADDED_CAPABILITIES, with_servers
from reconciler.units.resources import (
    UnitBuild,
    build_deployment,
    build_network_policy,
    build_service,
)
from reconciler.units.serverless_resources import plan_worker
from reconciler.units.ssh_resources import plan_ssh
from tests.support.ssh_blocks import ssh_block
from tests.unit.reconciler.units.builds import BLOCKED, make_build, pod_of
from tests.unit.reconciler.units.observed import SSH
from tests.unit.reconciler.units.test_serverless_resources import SIDECAR

TEMPLATE = {"ports": [{"name": "http", "port": 8000}], "envs": [{"name": "MODE", "value": "x"}, {"name": "EMPTY"}]}

OF_BASELINE = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}
"""What the Pod Security profile `baseline` lets a container add."""


def container_of(build: UnitBuild) -> Json:
    [container] = pod_of(build)["containers"]
    return dict(container)


def test_memory_and_gpu_are_request_and_limit_and_shm_is_half_the_memory() -> None:
    """Parity 28."""
    container = container_of(make_build(memory="3Gi", gpu=2))
    amounts = {"cpu": "4", "memory": "3Gi", "ephemeral-storage": "10Gi", "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert container["volumeMounts"] == [{"name": "runtime-shm", "mountPath": "/dev/shm"}]
    [volume] = pod_of(make_build(memory="3Gi"))["volumes"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1536Mi"}


def test_a_unit_without_gpus_asks_for_none() -> None:
    assert "nvidia.com/gpu" not in container_of(make_build(gpu=0))["resources"]["limits"]


def test_the_units_own_size_wins_over_the_catalogues() -> None:
    assert container_of(make_build())["resources"]["limits"]["memory"] == "16Gi"
    assert container_of(make_build(memory="8Gi"))["resources"]["limits"]["memory"] == "8Gi"


def test_the_environment_names_spec_unit_gpus_memory_and_address_then_the_tenants() -> None:
    """Parity 29."""
    env = {entry["name"]: entry for entry in container_of(make_build(template=TEMPLATE))["env"]}
    assert list(env) == ["SPEC_NAME", "UNIT_NAME", "GPU_COUNT", "MEMORY_LIMIT", "POD_IP", "MODE", "EMPTY"]
    assert env["SPEC_NAME"]["value"] == "g1.1"
    assert env["UNIT_NAME"]["value"] == "demo"
    assert env["GPU_COUNT"]["value"] == "1"
    assert env["MEMORY_LIMIT"]["value"] == "16Gi"
    assert env["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_a_tenants_variable_wins_over_ours_and_stands_once() -> None:
    env = container_of(make_build(template={"envs": [{"name": "GPU_COUNT", "value": "mine"}]}))["env"]
    assert [entry["value"] for entry in env if entry["name"] == "GPU_COUNT"] == ["mine"]


def test_without_image_and_command_the_placeholder_idles_and_with_an_image_its_entrypoint_runs() -> None:
    """Parity 29."""
    idle = container_of(make_build(image=None))
    assert (idle["image"], idle["command"]) == ("busybox:1.36", ["sleep", "infinity"])
    assert "command" not in container_of(make_build())
    chosen = container_of(make_build(template={"command": ["python"], "args": ["-m", "x"]}))
    assert (chosen["command"], chosen["args"]) == (["python"], ["-m", "x"])


def test_stock_idles_whatever_its_image_and_template_say() -> None:
    """Parity 14."""
    stock = make_build("runtime-stock", image="example/warm", template=TEMPLATE)
    container = container_of(stock)
    assert (container["image"], container["command"]) == ("example/warm", ["sleep", "infinity"])
    assert "ports" not in container
    assert build_service(stock) is None
    assert pod_of(stock)["priorityClassName"] == "gpu-runtime-stock"
    assert pod_of(stock)["terminationGracePeriodSeconds"] == 0


def test_every_container_of_a_unit_leaves_its_last_words_when_it_fails() -> None:
    worker = make_build(serverless={"requestID": "words"})
    sidecar = plan_worker(worker.spec, worker.namespace, worker.name, None, SIDECAR)
    ssh = plan_ssh(make_build(ssh=ssh_block()).spec, "runtime-instance", "demo", SSH, ())
    for build in (make_build(), replace(worker, worker=sidecar), replace(make_build(), ssh=ssh)):
        pod = pod_of(build)
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_a_bare_command_is_not_process_1_and_an_entrypoint_or_a_pod_with_sidecars_is() -> None:
    command = {"command": ["python3", "-m", "http.server"]}
    assert pod_of(make_build(template=command))["shareProcessNamespace"] is True
    assert pod_of(make_build(image=None))["shareProcessNamespace"] is True
    assert pod_of(make_build(names.STOCK_NAMESPACE))["shareProcessNamespace"] is True
    assert "shareProcessNamespace" not in pod_of(make_build())
    assert "shareProcessNamespace" not in pod_of(make_build(template={"args": ["--fast"]}))
    ssh = plan_ssh(make_build(ssh=ssh_block()).spec, "runtime-instance", "demo", SSH, ())
    assert "shareProcessNamespace" not in pod_of(replace(make_build(template=command), ssh=ssh))
    worker = make_build(template=command, serverless={"requestID": "words"})
    sidecar = plan_worker(worker.spec, worker.namespace, worker.name, None, SIDECAR)
    assert "shareProcessNamespace" not in pod_of(replace(worker, worker=sidecar))


def test_container_cannot_escalate_and_has_only_the_listed_capabilities() -> None:
    """Parity 30, and stricter: what the list does not name is dropped, above all NET_RAW."""
    context = container_of(make_build())["securityContext"]
    assert context == {
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"drop": ["ALL"], "add": list(ADDED_CAPABILITIES)},
    }
    assert set(ADDED_CAPABILITIES) <= OF_BASELINE - {"MKNOD", "SETFCAP", "SETPCAP"}


def test_every_container_has_an_ephemeral_storage_limit_and_every_empty_dir_a_size() -> None:
    worker = make_build(serverless={"requestID": "disks"})
    sidecar = plan_worker(worker.spec, worker.namespace, worker.name, None, SIDECAR)
    ssh = plan_ssh(make_build(ssh=ssh_block()).spec, "runtime-instance", "demo", SSH, ())
    for build in (make_build(), make_build("runtime-stock"), replace(worker, worker=sidecar, ssh=ssh)):
        pod = pod_of(build)
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            resources = container["resources"]
            assert "ephemeral-storage" in resources["requests"], container["name"]
            assert "ephemeral-storage" in resources["limits"], container["name"]
        for volume in pod["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"], volume


def test_a_units_disk_is_the_catalogues_and_its_stock_holds_the_same() -> None:
    said = {"ephemeralStorage": "0.5Ti"}
    for build in (make_build(catalogue=said), make_build("runtime-stock", catalogue=said)):
        resources = container_of(build)["resources"]
        assert resources["requests"]["ephemeral-storage"] == resources["limits"]["ephemeral-storage"] == "512Gi"
    assert container_of(make_build())["resources"]["limits"]["ephemeral-storage"] == "10Gi"


def test_stock_and_restricted_tenants_drop_everything_and_run_as_somebody() -> None:
    for build in (make_build("runtime-stock"), replace(make_build(), restricted=True)):
        context = container_of(build)["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["runAsNonRoot"] is True


def test_no_service_account_token_reaches_a_unit() -> None:
    assert pod_of(make_build())["automountServiceAccountToken"] is False


def test_the_catalogue_decides_the_place() -> None:
    toleration = Toleration(key="host", operator="Exists").to_json()
    pod = pod_of(
        make_build(
            catalogue={
                "gpuProduct": "NVIDIA-L40S",
                "nodeSelector": {"zone": "a"},
                "tolerations": [toleration],
                "runtimeClassName": "nvidia",
                "userNamespaces": True,
            }
        )
    )
    assert pod["nodeSelector"] == {"zone": "a", "nvidia.com/gpu.product": "NVIDIA-L40S"}
    assert pod["tolerations"] == [{"key": "host", "operator": "Exists"}]
    assert (pod["runtimeClassName"], pod["hostUsers"]) == ("nvidia", False)


def test_egress_is_dns_and_the_internet_without_private_ranges() -> None:
    """Parity 31."""
    policy = build_network_policy(make_build())["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    dns, internet, _ = policy["egress"]
    assert dns["ports"] == [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    [resolvers] = dns["to"]
    assert resolvers["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    assert resolvers["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
    assert internet["to"][0]["ipBlock"] == {"cidr": "0.0.0.0/0", "except": list(BLOCKED)}


@pytest.mark.parametrize(
    ("addresses", "added"),
    [
        ((), ()),
        (("10.0.0.7",), ()),
        (("203.0.113.7", "10.0.0.7", "203.0.113.8"), ("203.0.113.7/32", "203.0.113.8/32")),
        (("2001:db8::1",), ("2001:db8::1/128",)),
        (("fc00::1",), ()),
    ],
)
def test_the_api_servers_own_addresses_are_blocked_where_no_network_has_them(
    addresses: tuple[str, ...], added: tuple[str, ...]
) -> None:
    blocked = ("10.0.0.0/8", "fc00::/7")
    assert with_servers(blocked, [(address, 6443) for address in addresses]) == (*blocked, *added)


def test_ingress_is_the_platforms_proxy_on_the_declared_ports_and_else_nobody() -> None:
    assert "ingress" not in build_network_policy(make_build())["spec"]
    [rule] = build_network_policy(make_build(template=TEMPLATE))["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8000}]
    [proxy] = rule["from"]
    assert proxy["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "runtime-system"}}
    # Of the pods that `infra` makes for the API.
    assert proxy["podSelector"] == {"matchLabels": app_labels(API)}


def test_the_tenants_units_may_call_a_unit_that_says_so_and_no_other() -> None:
    units = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "gpu-runtime-unit"}}}
    ports = {"ports": [{"name": "http", "port": 8000}, {"name": "dns", "port": 53, "protocol": "UDP"}]}

    def policy_of(**spec: Any) -> Json:
        policy: Json = build_network_policy(make_build(**spec))["spec"]
        return policy

    [admitted] = policy_of(template=ports, access={"tenant": True})["ingress"]
    assert units in admitted["from"]
    assert admitted["ports"] == [{"protocol": "TCP", "port": 8000}, {"protocol": "UDP", "port": 53}]
    for access in (None, {"scheme": "http"}, {"tenant": False}):
        [admitted] = policy_of(template=ports, access=access)["ingress"]
        assert units not in admitted["from"]
    # A caller needs no ports of its own, and stock makes no calls.
    assert {"to": [units]} in policy_of()["egress"]
    stock = build_network_policy(make_build(names.STOCK_NAMESPACE, template=ports, access={"tenant": True}))
    assert "ingress" not in stock["spec"]
    assert {"to": [units]} not in stock["spec"]["egress"]


def test_probes_become_kubernetes_probes() -> None:
    probes = {
        "readiness": {"http": {"path": "/ok", "port": "http"}},
        "liveness": {"command": ["true"], "initialDelaySeconds": 5},
        "startup": {"tcp": {"port": "http"}, "failureThreshold": 30},
    }
    container = container_of(make_build(template={**TEMPLATE, "probes": probes}))
    assert container["readinessProbe"]["httpGet"] == {"path": "/ok", "port": "http", "scheme": "HTTP"}
    assert container["livenessProbe"]["exec"] == {"command": ["true"]}
    assert container["livenessProbe"]["initialDelaySeconds"] == 5
    assert container["startupProbe"] == {
        "tcpSocket": {"port": "http"},
        "periodSeconds": 10,
        "timeoutSeconds": 1,
        "failureThreshold": 30,
    }
    assert "startupProbe" not in container_of(make_build(template=TEMPLATE))


def test_one_more_restart_is_another_template_and_none_leaves_no_trace() -> None:
    templates = [make_build(restarts=restarts).pod_template for restarts in range(3)]
    assert templates[0] == make_build().pod_template
    assert "annotations" not in templates[0]["metadata"]
    assert templates[1]["metadata"]["annotations"] == {"runtime.lokiwager.io/restarts": "1"}
    assert len({template["metadata"]["labels"]["runtime.lokiwager.io/template"] for template in templates}) == 3
    assert templates[0]["spec"] == templates[2]["spec"]


def test_an_update_never_needs_a_second_set_of_gpus() -> None:
    assert build_deployment(make_build())["spec"]["strategy"] == {"type": "Recreate"}
