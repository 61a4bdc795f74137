"""What a unit that takes calls has besides, and that no other unit has any of it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import GPUUnitSpec, Phase, Reason
from reconciler.units.plan import UnitSettings, plan_unit
from reconciler.units.resources import build_network_policy
from reconciler.units.serverless_resources import Egress, SidecarSettings, find_egress, plan_worker
from tests.support.builders import NOW, make_unit
from tests.unit.reconciler.units.builds import make_build, pod_of
from tests.unit.reconciler.units.observed import SSH, observe, ready_reason

SIDECAR = SidecarSettings(
    nats_url="tls://nats.example.com:4222",
    egress=None,
    image="gpu-platform:1",
    command=("python", "-m", "serverless.sidecar"),
    result_retention=timedelta(hours=1),
    grace=timedelta(seconds=120),
    has_credentials=True,
    has_authority=True,
)
BLOCK = {"requestID": "words"}


def worker_pod(settings: SidecarSettings = SIDECAR, function: GPUFunctionSpec | None = None, **spec: Any) -> Json:
    build = make_build(serverless=BLOCK, **spec)
    worker = plan_worker(build.spec, build.namespace, build.name, function, settings)
    return pod_of(replace(build, worker=worker))


def env_of(container: Json) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def test_a_unit_that_takes_no_calls_is_as_it_was() -> None:
    """Another template would restart it."""
    plain = make_build()
    worker = plan_worker(plain.spec, plain.namespace, plain.name, None, SIDECAR)

    assert worker is None
    assert pod_of(replace(plain, worker=worker)) == pod_of(plain)
    assert "initContainers" not in pod_of(plain)
    assert pod_of(plain)["terminationGracePeriodSeconds"] == 30


def test_the_sidecar_is_native_and_the_main_container_does_not_wait_for_it() -> None:
    [sidecar] = worker_pod()["initContainers"]

    assert sidecar["restartPolicy"] == "Always"
    assert "startupProbe" not in sidecar
    assert sidecar["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8091, "scheme": "HTTP"}
    assert sidecar["command"] == ["python", "-m", "serverless.sidecar"]


def test_the_sidecar_is_told_how_its_worker_came() -> None:
    build = make_build(serverless=BLOCK)
    worker = plan_worker(build.spec, build.namespace, build.name, None, SIDECAR, woken_at=NOW, claimed_at=NOW)
    [sidecar] = pod_of(replace(build, worker=worker))["initContainers"]
    [joined] = worker_pod()["initContainers"]

    told = env_of(sidecar)
    assert told["GPU_PLATFORM_SIDECAR_WOKEN_AT"] == told["GPU_PLATFORM_SIDECAR_CLAIMED_AT"] == NOW.isoformat()
    assert not any(name.endswith("_AT") for name in env_of(joined))


def test_both_see_the_socket_and_only_the_sidecar_the_credentials() -> None:
    pod = worker_pod()
    [main], [sidecar] = pod["containers"], pod["initContainers"]

    def mounts(container: Json) -> set[str]:
        return {mount["name"] for mount in container["volumeMounts"]}

    assert mounts(main) == {"runtime-shm", "serverless-framework-socket"}
    assert mounts(sidecar) == {"serverless-framework-socket", "serverless-credentials"}
    [secret] = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    assert secret["secretName"] == "function-words"
    assert env_of(main)["SERVERLESS_SOCKET"] == "/tmp/serverless-framework/framework.sock"
    assert not any("NATS" in name for name in env_of(main))


def test_whoever_the_image_runs_as_the_sidecar_may_use_the_socket() -> None:
    pod = worker_pod()

    assert pod["securityContext"]["fsGroup"] == 65_534
    assert pod["initContainers"][0]["securityContext"]["runAsNonRoot"] is True


def test_without_credentials_and_authority_there_is_no_secret() -> None:
    pod = worker_pod(replace(SIDECAR, has_credentials=False, has_authority=False))

    assert not any("secret" in volume for volume in pod["volumes"])
    assert "GPU_PLATFORM_SIDECAR_NATS_CREDENTIALS" not in env_of(pod["initContainers"][0])


def test_a_unit_ends_after_its_calls() -> None:
    pod = worker_pod()

    assert pod["terminationGracePeriodSeconds"] == 120
    assert pod["containers"][0]["lifecycle"]["preStop"]["httpGet"]["path"] == "/drain"


def test_the_sidecar_is_told_what_the_function_says() -> None:
    function = GPUFunctionSpec(spec_name="g1.1", image="x", concurrency=4, max_attempts=7, ack_wait_seconds=9)

    told = env_of(worker_pod(function=function)["initContainers"][0])

    prefix = "GPU_PLATFORM_SIDECAR_"
    assert {name.removeprefix(prefix): value for name, value in told.items() if name != "POD_IP"} == {
        "NATS_URL": "tls://nats.example.com:4222",
        "NATS_CREDENTIALS": "/etc/gpu-platform-nats/nats.creds",
        "NATS_CA": "/etc/gpu-platform-nats/ca.crt",
        "TENANT": "default",
        "FUNCTION": "words",
        "WORKER": "demo",
        "SOCKET": "/tmp/serverless-framework/framework.sock",
        "INVOKE_PATH": "/invoke",
        "HEALTH_PATH": "/healthz",
        "CONCURRENCY": "4",
        "MAX_ATTEMPTS": "7",
        "ACK_WAIT_SECONDS": "9",
        "RESULT_RETENTION_SECONDS": "3600",
        "HEALTH_HOST": "$(POD_IP)",
        "HEALTH_PORT": "8091",
    }


def test_a_function_that_is_made_after_its_unit_does_not_restart_it() -> None:
    defaults = GPUFunctionSpec(spec_name="g1.1", image="x")

    assert worker_pod(function=None) == worker_pod(function=defaults)


@pytest.mark.parametrize(
    ("egress", "rule"),
    [
        (
            Egress(4222, "queue", (("app", "nats"),)),
            {
                "to": [
                    {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "queue"}},
                        "podSelector": {"matchLabels": {"app": "nats"}},
                    }
                ],
                "ports": [{"protocol": "TCP", "port": 4222}],
            },
        ),
        (
            Egress(4333, cidr="10.1.2.0/24"),
            {"to": [{"ipBlock": {"cidr": "10.1.2.0/24"}}], "ports": [{"protocol": "TCP", "port": 4333}]},
        ),
    ],
)
def test_the_policy_has_one_hole_more_to_nats_and_nothing_else(egress: Egress, rule: Json) -> None:
    """Parity 62."""
    plain = make_build(serverless=BLOCK)
    worker = plan_worker(plain.spec, plain.namespace, plain.name, None, replace(SIDECAR, egress=egress))

    egresses = build_network_policy(replace(plain, worker=worker))["spec"]["egress"]

    assert egresses == [*build_network_policy(plain)["spec"]["egress"], rule]


@pytest.mark.parametrize(
    ("url", "labels", "cidr", "hole"),
    [
        ("nats://nats.queue.svc:4222", (("app", "nats"),), None, Egress(4222, "queue", (("app", "nats"),))),
        ("nats://nats.queue.svc.cluster.local", (("a", "b"),), None, Egress(4222, "queue", (("a", "b"),))),
        ("tls://nats.example.com:443", (("a", "b"),), None, Egress(443, "runtime-system", (("a", "b"),))),
        ("nats://10.1.2.3:4222", (), "10.1.2.0/24", Egress(4222, cidr="10.1.2.0/24")),
        ("nats://10.1.2.3", (), None, Egress(4222, cidr="10.1.2.3/32")),
        ("nats://[fd00::1]:4222", (), None, Egress(4222, cidr="fd00::1/128")),
        ("tls://nats.example.com:4222", (), None, None),
    ],
)
def test_the_hole_follows_from_the_address(
    url: str, labels: tuple[tuple[str, str], ...], cidr: str | None, hole: Egress | None
) -> None:
    assert find_egress(url, None, labels, cidr) == (hole, None)


@pytest.mark.parametrize("host", ["nats.queue.svc", "nats.queue.svc.cluster.local"])
def test_pods_behind_a_service_have_to_be_named(host: str) -> None:
    """Parity 62."""
    hole, problem = find_egress(f"nats://{host}:4222", None, (), None)

    assert hole is None
    assert "natsEgressLabels" in (problem or "")


@pytest.mark.parametrize(
    ("sidecar", "namespace", "ports", "words"),
    [
        (None, "runtime-instance", [], "natsURL"),
        (replace(SIDECAR, problem="natsEgressLabels is empty"), "runtime-instance", [], "natsEgressLabels is empty"),
        (SIDECAR, "other", [], "namespaces of tenants"),
        (SIDECAR, "runtime-instance", [{"name": "http", "port": 8091}], "8091"),
    ],
)
def test_a_unit_that_cannot_take_calls_says_what_to_mend(
    sidecar: SidecarSettings | None, namespace: str, ports: list[Json], words: str
) -> None:
    unit = make_unit(namespace=namespace, serverless=BLOCK, template={"ports": ports})

    plan = plan_unit(observe(unit), UnitSettings("busybox:1.36", (), SSH, sidecar), NOW)

    assert plan.writes == ()
    assert ready_reason(plan) == (Phase.FAILED, Reason.SERVERLESS_CONFIG_INVALID)
    assert words in plan.status.conditions[0].message


def test_stock_never_takes_calls() -> None:
    spec = GPUUnitSpec.model_validate({"specName": "g1.1", "serverless": BLOCK})

    assert plan_worker(spec, "runtime-stock", "pool-0", None, SIDECAR) is None
