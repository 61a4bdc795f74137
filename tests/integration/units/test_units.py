"""Units on the real API server, driven by kubectl's means: the parity checks of the unit reconciler.

That an event brings a pass at once is held in virtual time by test_loop; `make bench` measures how long it takes until
a child is put right.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient, PatchType, list_and_watch
from gpu_platform.kube.paths import DEPLOYMENTS, EVENTS, GPU_UNITS, NETWORK_POLICIES, PODS, SERVICES
from reconciler.units.pod_status import is_finished
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    create_unit,
    delete_unit,
    find,
    get_unit,
    ready_condition,
    stock_of,
    stock_pool,
    unit_body,
    wait_unit_phase,
)
from tests.support.waiting import NotYet, eventually

HTTP = {"ports": [{"name": "http", "port": 8000}, {"name": "admin", "port": 9000}]}


@pytest.fixture
async def unit(kube: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A name for the test's unit; the unit is gone afterwards."""
    name = request.node.name.removeprefix("test_").replace("_", "-").split("[")[0][:36].strip("-")
    yield name
    await delete_unit(kube, name)


async def test_stock_gets_a_deployment_and_a_policy_but_no_service_and_no_address(kube: KubeClient) -> None:
    """Parity 14."""
    async with stock_pool(kube, "parity-14", 1):
        [stock] = await stock_of(kube, "parity-14")
        name = names.child_name(stock["metadata"]["name"])
        assert await find(kube, DEPLOYMENTS.item(name, STOCK))
        assert await find(kube, NETWORK_POLICIES.item(name, STOCK))
        assert await find(kube, SERVICES.item(name, STOCK)) is None
        assert stock["status"]["phase"] == "Ready"
        assert ready_condition(stock)["reason"] == "StockReady"
        assert "accessURL" not in stock["status"]
        assert "serviceName" not in stock["status"]


async def test_instance_with_ports_gets_deployment_service_and_address(kube: KubeClient, unit: str) -> None:
    """Parity 27."""
    await create_unit(kube, unit_body(unit, template=HTTP, access={"primaryPort": "admin", "scheme": "https"}))
    ready = await wait_unit_phase(kube, unit, "Ready")
    assert ready["status"]["accessURL"] == f"https://unit-{unit}.{INSTANCES}.svc.cluster.local:9000"
    assert ready["status"]["serviceName"] == f"unit-{unit}"
    assert ready["status"]["readyReplicas"] == 1
    assert ready["status"]["observedGeneration"] == ready["metadata"]["generation"]
    assert ready_condition(ready)["reason"] == "UnitReady"
    service = await kube.get(SERVICES.item(names.child_name(unit), INSTANCES))
    assert service["spec"]["type"] == "ClusterIP"
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("http", 8000), ("admin", 9000)]
    deployment = await kube.get(DEPLOYMENTS.item(names.child_name(unit), INSTANCES))
    assert deployment["spec"]["replicas"] == 1
    await kube.patch(
        GPU_UNITS.item(unit, INSTANCES), {"spec": {"template": {"ports": None}, "access": None}}, PatchType.MERGE
    )

    async def service_is_gone() -> bool:
        return await find(kube, SERVICES.item(names.child_name(unit), INSTANCES)) is None

    await eventually(service_is_gone)


async def test_the_pod_carries_size_environment_and_security_context(kube: KubeClient, unit: str) -> None:
    """Parity 28, 29, 30: as the API server stored them."""
    await create_unit(kube, unit_body(unit, memory="8Gi", gpu=0, image=None))
    await wait_unit_phase(kube, unit, "Ready")
    [pod] = await pods_of(kube, unit)
    [container] = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["command"] == ["sleep", "infinity"]
    assert {"SPEC_NAME", "UNIT_NAME", "GPU_COUNT", "MEMORY_LIMIT", "POD_IP"} <= {
        entry["name"] for entry in container["env"]
    }
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    [shm] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "runtime-shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "4Gi"}


async def test_the_policy_lets_out_dns_and_the_internet_only(kube: KubeClient, unit: str) -> None:
    """Parity 31."""
    await create_unit(kube, unit_body(unit))
    await wait_unit_phase(kube, unit, "Ready")
    policy = await kube.get(NETWORK_POLICIES.item(names.child_name(unit), INSTANCES))
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "10.0.0.0/8" in policy["spec"]["egress"][1]["to"][0]["ipBlock"]["except"]


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"memory": "not-a-quantity"}, "InvalidSpec", "spec.memory"),
        ({"specName": "nowhere.1"}, "InvalidSpec", "there is no GPUSpec 'nowhere.1'"),
        ({"access": {"primaryPort": "web"}}, "AccessConfigInvalid", "spec.access.primaryPort"),
    ],
)
async def test_a_bad_hand_made_unit_fails_once_with_words(
    kube: KubeClient, unit: str, spec: Json, reason: str, words: str
) -> None:
    """Parity 32."""
    await create_unit(kube, unit_body(unit, **spec))
    failed = await wait_unit_phase(kube, unit, "Failed")
    assert ready_condition(failed)["reason"] == reason
    assert words in ready_condition(failed)["message"]
    assert await find(kube, DEPLOYMENTS.item(names.child_name(unit), INSTANCES)) is None
    [event] = await eventually(lambda: events_of(kube, failed))
    assert (event["reason"], event["type"]) == (reason, "Warning")


async def test_a_crash_loop_is_shown_with_the_containers_message(kube: KubeClient, unit: str) -> None:
    """Parity 33, on the host node: the command really ends with 3."""
    command = ["sh", "-c", "echo the model is missing; exit 3"]
    await create_unit(kube, unit_body(unit, specName="host.1", image=None, template={"command": command}))
    failed = await wait_unit_phase(kube, unit, "Failed")
    condition = ready_condition(failed)
    assert condition["reason"] == "PodStartupFailed"
    assert "the model is missing" in condition["message"]
    assert "exit code 3" in condition["message"]


async def test_an_unfetchable_image_is_shown_with_the_nodes_message(kube: KubeClient, unit: str) -> None:
    """Parity 33: the host node has no images."""
    await create_unit(kube, unit_body(unit, specName="host.1"))
    failed = await wait_unit_phase(kube, unit, "Failed")
    assert ready_condition(failed)["reason"] == "PodStartupFailed"
    assert "ImagePullBackOff" in ready_condition(failed)["message"]


async def test_a_unit_without_room_is_pending_in_the_schedulers_words(kube: KubeClient, unit: str) -> None:
    await create_unit(kube, unit_body(unit, gpu=64))
    pending = await wait_unit_phase(kube, unit, "Pending")
    assert ready_condition(pending)["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in ready_condition(pending)["message"]


@pytest.fixture(scope="module")
async def drifter(kube: KubeClient) -> AsyncIterator[str]:
    """A Ready unit whose children are changed behind the reconciler, and put right again."""
    await create_unit(kube, unit_body("drifter", template=HTTP))
    await wait_unit_phase(kube, "drifter", "Ready")
    yield "drifter"
    await delete_unit(kube, "drifter")


@pytest.mark.parametrize("kind", ["deployments", "services", "networkpolicies"])
async def test_a_deleted_child_is_back_at_once(kube: KubeClient, drifter: str, kind: str) -> None:
    """Parity 35."""
    path = {"deployments": DEPLOYMENTS, "services": SERVICES, "networkpolicies": NETWORK_POLICIES}[kind]
    item = path.item(names.child_name(drifter), INSTANCES)
    before = await kube.get(item)
    await kube.delete(item)

    async def is_back() -> bool:
        now = await find(kube, item)
        return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"]

    await eventually(is_back)
    await wait_unit_phase(kube, drifter, "Ready")


EDITS: dict[str, tuple[Any, Json]] = {
    "replicas": (DEPLOYMENTS, {"spec": {"replicas": 3}}),
    "image": (
        DEPLOYMENTS,
        {"spec": {"template": {"spec": {"containers": [{"name": "runtime-worker", "image": "evil"}]}}}},
    ),
    "added variable": (
        DEPLOYMENTS,
        {
            "spec": {
                "template": {
                    "spec": {"containers": [{"name": "runtime-worker", "env": [{"name": "EVIL", "value": "1"}]}]}
                }
            }
        },
    ),
    "added field": (DEPLOYMENTS, {"spec": {"paused": True}}),
    "added field of the container": (
        DEPLOYMENTS,
        {"spec": {"template": {"spec": {"containers": [{"name": "runtime-worker", "tty": True}]}}}},
    ),
    "service port": (SERVICES, {"spec": {"ports": [{"name": "http", "port": 8000, "targetPort": 1}]}}),
    "policy": (NETWORK_POLICIES, {"spec": {"egress": [{}]}}),
}


@pytest.mark.parametrize("edit", list(EDITS))
async def test_an_edited_child_is_put_back_at_once(kube: KubeClient, drifter: str, edit: str) -> None:
    """Parity 35."""
    path, change = EDITS[edit]
    item = path.item(names.child_name(drifter), INSTANCES)
    before = await kube.get(item)
    edited = await kube.patch(item, change, PatchType.STRATEGIC, {"fieldManager": "kubectl-edit"})
    assert edited["spec"] != before["spec"]

    async def is_as_before() -> bool:
        return bool((await kube.get(item))["spec"] == before["spec"])

    await eventually(is_as_before)


async def test_deleting_the_unit_removes_its_objects(kube: KubeClient, unit: str) -> None:
    """Parity 36."""
    await create_unit(kube, unit_body(unit, template=HTTP))
    await wait_unit_phase(kube, unit, "Ready")
    await delete_unit(kube, unit)

    async def all_are_gone() -> bool:
        name = names.child_name(unit)
        left = [await find(kube, path.item(name, INSTANCES)) for path in (DEPLOYMENTS, SERVICES, NETWORK_POLICIES)]
        return not any(left) and not await pods_of(kube, unit)

    await eventually(all_are_gone)


async def test_stop_frees_the_gpus_and_start_takes_them_again(kube: KubeClient, unit: str) -> None:
    await create_unit(kube, unit_body(unit, template=HTTP))
    await wait_unit_phase(kube, unit, "Ready")
    await kube.patch(GPU_UNITS.item(unit, INSTANCES), {"spec": {"running": False}})
    stopped = await wait_unit_phase(kube, unit, "Stopped")
    assert "accessURL" not in stopped["status"]

    async def no_pod_is_left() -> bool:
        return not await pods_of(kube, unit)

    await eventually(no_pod_is_left)
    await kube.patch(GPU_UNITS.item(unit, INSTANCES), {"spec": {"running": True}})
    await wait_unit_phase(kube, unit, "Ready")


async def test_a_unit_is_stopped_when_its_program_has_ended(kube: KubeClient, unit: str, tmp_path: Path) -> None:
    """On the host node, where the program ends when the test lets it."""
    gate = tmp_path / "gate"
    script = (
        f"trap 'while [ ! -e {gate} ]; do sleep 0.05; done; exit' TERM; touch {gate}.set; while :; do sleep 0.05; done"
    )
    await create_unit(kube, unit_body(unit, specName="host.1", template={"command": ["sh", "-c", script]}))
    await wait_unit_phase(kube, unit, "Ready")

    async def listens() -> bool:
        return gate.with_suffix(".set").exists()

    async def is_stopping() -> bool | NotYet:
        status = (await get_unit(kube, unit))["status"]
        return status["conditions"][0]["reason"] == "Stopping" or NotYet(status)

    await eventually(listens)
    await kube.patch(GPU_UNITS.item(unit, INSTANCES), {"spec": {"running": False}})
    await eventually(is_stopping)
    assert len(await pods_of(kube, unit)) == 1
    gate.touch()
    await wait_unit_phase(kube, unit, "Stopped")
    # One that has ended holds no GPUs; it is deleted a moment later.
    assert [pod["status"] for pod in await pods_of(kube, unit) if not is_finished(pod)] == []


async def test_a_crash_loop_is_not_ready_after_a_restart_and_shows_its_last_words(kube: KubeClient, unit: str) -> None:
    script = "echo no model found; sleep 0.5; exit 3"
    async with versions_of(kube, unit) as versions:
        await create_unit(kube, unit_body(unit, specName="host.1", template={"command": ["sh", "-c", script]}))

        async def restarts() -> bool | NotYet:
            statuses = [pod["status"].get("containerStatuses") or [] for pod in await pods_of(kube, unit)]
            return any(each["restartCount"] >= 3 for each in chain(*statuses)) or NotYet(statuses)

        await eventually(restarts)
        phases = [version.get("status", {}).get("phase") for version in versions]
        failed = await wait_unit_phase(kube, unit, "Failed")
    assert "Failed" in phases
    assert "Ready" not in phases[phases.index("Failed") :]
    assert "no model found" in ready_condition(failed)["message"]


async def test_an_edited_unit_is_not_ready_before_a_pod_of_its_new_template_is(
    kube: KubeClient, unit: str, tmp_path: Path
) -> None:
    """On the host node, where the new pod is not ready until the test lets it."""
    gate = tmp_path / "gate"
    template = {"command": ["sleep", "infinity"]}
    await create_unit(kube, unit_body(unit, specName="host.1", template=template))
    await wait_unit_phase(kube, unit, "Ready")
    probes = {"readiness": {"command": ["test", "-e", str(gate)], "periodSeconds": 1}}
    edit = {"spec": {"image": "example/newer", "template": {"probes": probes}}}
    async with versions_of(kube, unit) as versions:
        edited = await kube.patch(GPU_UNITS.item(unit, INSTANCES), edit)

        def phases() -> list[str]:
            """What the status said of the edited unit, in order."""
            statuses = [version.get("status", {}) for version in versions]
            generation = edited["metadata"]["generation"]
            return [status["phase"] for status in statuses if status.get("observedGeneration") == generation]

        async def new_pod_runs() -> bool:
            pods = [pod for pod in await pods_of(kube, unit) if pod["status"]["phase"] == "Running"]
            return [pod["spec"]["containers"][0]["image"] for pod in pods] == ["example/newer"]

        async def is_ready() -> bool:
            return "Ready" in phases()

        await eventually(new_pod_runs)
        await wait_unit_phase(kube, unit, "Progressing")
        assert "Ready" not in phases()
        gate.touch()
        await eventually(is_ready)


async def test_a_web_server_on_the_host_node_answers_and_its_unit_is_ready(kube: KubeClient, unit: str) -> None:
    command = ["python3", "-m", "http.server", "--bind", "$(POD_IP)", "8000"]
    probes = {"readiness": {"http": {"port": "http"}, "periodSeconds": 1}}
    template = {"command": command, "ports": [{"name": "http", "port": 8000}], "probes": probes}
    await create_unit(kube, unit_body(unit, specName="host.1", image=None, template=template))
    ready = await wait_unit_phase(kube, unit, "Ready")
    assert ready["status"]["nodeName"] == "host"
    [pod] = await pods_of(kube, unit)
    address = pod["metadata"]["annotations"][names.ANNOTATION_HOST_ADDRESS]
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}:8000/") as response:
        assert response.status == 200


async def test_status_says_what_the_unit_is_and_events_say_what_happened(kube: KubeClient, unit: str) -> None:
    await create_unit(kube, unit_body(unit))
    ready = await wait_unit_phase(kube, unit, "Ready")
    transition = ready_condition(ready)["lastTransitionTime"]
    assert transition

    async def ready_event() -> Json | None:
        return next((event for event in await events_of(kube, ready) if event["reason"] == "UnitReady"), None)

    event = await eventually(ready_event)
    assert event["type"] == "Normal"
    again = await get_unit(kube, unit)
    assert ready_condition(again)["lastTransitionTime"] == transition


@asynccontextmanager
async def versions_of(kube: KubeClient, unit: str) -> AsyncIterator[list[Json]]:
    """Every version of the unit from here on, as a watch shows them; the list grows."""
    versions: list[Json] = []
    is_listed = asyncio.Event()

    async def follow() -> None:
        selector = {"fieldSelector": f"metadata.name={unit}"}
        async with aclosing(list_and_watch(kube, GPU_UNITS.collection(INSTANCES), selector)) as events:
            async for event in events:
                if event.type == "SYNCED":
                    is_listed.set()
                else:
                    versions.append(event.object)

    task = asyncio.create_task(follow())
    try:
        await is_listed.wait()
        yield versions
    finally:
        task.cancel()
        await asyncio.wait({task})


async def pods_of(kube: KubeClient, unit: str, namespace: str = INSTANCES) -> list[Json]:
    selector = {"labelSelector": f"{names.LABEL_UNIT}={unit}"}
    return list((await kube.get(PODS.collection(namespace), selector))["items"])


async def events_of(kube: KubeClient, item: Json) -> list[Json]:
    selector = {"fieldSelector": f"involvedObject.uid={item['metadata']['uid']}"}
    return list((await kube.get(EVENTS.collection(item["metadata"]["namespace"]), selector))["items"])
