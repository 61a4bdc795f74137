"""What is declared over REST, storages and functions alike: made once, deleted on record, settled after a death, and
left to the program that owns it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import delete_operation_name, operation_name
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient, ResourcePath
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_STORAGES, OPERATIONS
from tests.support.api import api_process, code_of, open_api, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.fault_report import FaultReport
from tests.support.functions import FUNCTIONS, build_function_request, remove_function
from tests.support.storages import STORAGES, build_storage_request, remove_storage
from tests.support.tenants import tenant
from tests.support.units_and_stock import INSTANCES, ensure_spec, find
from tests.support.units_api import SPEC, spec_body
from tests.support.waiting import eventually


@dataclass(frozen=True)
class Declared:
    what: str
    url: str
    path: ResourcePath
    wish: Callable[[str], Json]
    remove: Callable[[httpx.AsyncClient, KubeClient, str], Awaitable[None]]
    spec: Json
    change: Json


STORAGE = Declared(
    "Storage", STORAGES, GPU_STORAGES, build_storage_request, remove_storage, {"size": "1Gi"}, {"size": "2Gi"}
)
FUNCTION = Declared(
    "Function",
    FUNCTIONS,
    GPU_FUNCTIONS,
    build_function_request,
    remove_function,
    {"specName": SPEC, "image": "example/words"},
    {"queueLimit": 5},
)
for_each_kind = pytest.mark.parametrize("kind", [STORAGE, FUNCTION], ids=["storage", "function"])


@pytest.fixture(scope="module", autouse=True)
async def spec(kube: KubeClient) -> None:
    await ensure_spec(kube, spec_body(SPEC))


@for_each_kind
async def test_many_at_once_with_one_operation_id_make_one(
    api: httpx.AsyncClient, kube: KubeClient, kind: Declared
) -> None:
    answers = await asyncio.gather(*(api.post(kind.url, json=kind.wish("crowd")) for _ in range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
    await kind.remove(api, kube, "crowd")


@for_each_kind
async def test_deleting_is_recorded_and_what_was_deleted_is_not_answered_again(
    api: httpx.AsyncClient, kube: KubeClient, kind: Declared
) -> None:
    made = await api.post(kind.url, json=kind.wish("taken-away"))
    assert made.status_code == 201, made.text
    uid = (await kube.get(kind.path.item("taken-away", INSTANCES)))["metadata"]["uid"]
    late = await api.delete(f"{kind.url}/taken-away", headers={"If-Match": '"another.1"'})
    assert (late.status_code, code_of(late)) == (412, "precondition_failed")
    gone = await api.delete(f"{kind.url}/taken-away", headers={"If-Match": made.headers["ETag"]})
    assert (gone.status_code, gone.content) == (204, b"")
    record = OPERATIONS.item(delete_operation_name("default", uid), INSTANCES)
    assert (await kube.get(record))["spec"]["kind"] == f"Delete{kind.what}"

    async def is_gone() -> bool:
        return (await api.get(f"{kind.url}/taken-away")).status_code == 404

    await eventually(is_gone)

    async def is_settled() -> bool:
        return bool((await kube.get(record)).get("status", {}).get("phase") == "Succeeded")

    await eventually(is_settled)
    replay = await api.post(kind.url, json=kind.wish("taken-away"))
    assert (replay.status_code, code_of(replay)) == (409, "operation_conflict")
    assert "needs a new operationID" in replay.json()["error"]["message"]
    assert (await api.delete(f"{kind.url}/taken-away")).status_code == 404
    await kind.remove(api, kube, "taken-away")


@pytest.mark.parametrize(
    ("kind", "moment", "is_made"),
    [
        pytest.param(STORAGE, "recorded", False, id="storage recorded", marks=pytest.mark.faults),
        pytest.param(STORAGE, "created", True, id="storage created"),
        pytest.param(FUNCTION, "recorded", False, id="function recorded", marks=pytest.mark.faults),
        pytest.param(FUNCTION, "created", True, id="function created", marks=pytest.mark.faults),
    ],
)
async def test_a_process_that_dies_leaves_nothing_that_the_reconciler_does_not_settle(
    cluster: RunningCluster,
    kube: KubeClient,
    api: httpx.AsyncClient,
    tmp_path: Path,
    kind: Declared,
    moment: str,
    is_made: bool,
    faults: FaultReport,
) -> None:
    wish = kind.wish("dying")
    record = OPERATIONS.item(operation_name("default", wish["operationID"]), INSTANCES)
    fault = f"api.{kind.what.lower()}-{moment}"
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "dying.log", fault=fault) as (daemon, url),
        open_api(url, cluster.record.api_key) as dying,
    ):
        await wait_ready(dying)
        with pytest.raises(httpx.TransportError):
            await dying.post(kind.url, json=wish)
        assert await daemon.ends() == -9
    faults.hit(fault)
    assert (await find(kube, kind.path.item("dying", INSTANCES)) is not None) is is_made

    async def is_settled() -> bool:
        operation = await find(kube, record)
        return (operation or {}).get("status", {}).get("phase") == "Succeeded" if is_made else operation is None

    await eventually(is_settled)
    again = await api.post(kind.url, json=wish)
    assert again.status_code == (200 if is_made else 201)
    faults.held("it is finished or undone", "a replay makes one")
    await kind.remove(api, kube, "dying")


@for_each_kind
async def test_what_a_program_owns_is_changed_there(api: httpx.AsyncClient, kube: KubeClient, kind: Declared) -> None:
    body = {
        "apiVersion": names.API_VERSION,
        "kind": f"GPU{kind.what}",
        "metadata": {
            "name": "owned",
            "namespace": INSTANCES,
            "annotations": {names.ANNOTATION_OWNER_STACK: "shop/prod"},
        },
        "spec": kind.spec,
    }
    await kube.create(kind.path.collection(INSTANCES), body)
    for method, fields in (("PUT", kind.change), ("DELETE", None)):
        answer = await api.request(method, f"{kind.url}/owned", json=fields)
        assert (answer.status_code, code_of(answer)) == (409, "operation_conflict")
        assert "shop/prod" in answer.json()["error"]["message"]
    stack = await api.get(f"{kind.url}/owned/stack")
    assert (stack.status_code, code_of(stack)) == (404, "stack_not_found")
    await kube.delete(kind.path.item("owned", INSTANCES))


@for_each_kind
async def test_who_may_only_look_changes_nothing(api: httpx.AsyncClient, kube: KubeClient, kind: Declared) -> None:
    async with tenant(kube, str(api.base_url), Role.VIEWER) as viewer:
        refused = await viewer.api.post(kind.url, json=kind.wish("looked-at"))
        assert (refused.status_code, code_of(refused)) == (403, "forbidden")
        assert (await viewer.api.get(kind.url)).status_code == 200
