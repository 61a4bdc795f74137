"""Functions over REST: declared once, changed as they were seen, taken away for good, and nobody else's business."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient, PatchType
from gpu_platform.kube.paths import GPU_FUNCTIONS, OPERATIONS
from tests.architecture.repository import ROOT
from tests.support.api import UNITS, code_of
from tests.support.clusters import RunningCluster
from tests.support.functions import FUNCTIONS, build_function_request, post_function, remove_function
from tests.support.tenants import tenant
from tests.support.units_and_stock import INSTANCES, ensure_spec, find, stock_pool
from tests.support.units_api import SPEC, remove_unit, rest_unit, spec_body
from tests.support.waiting import NotYet, eventually


@pytest.fixture(scope="module", autouse=True)
async def spec(kube: KubeClient) -> None:
    await ensure_spec(kube, spec_body(SPEC))


@pytest.fixture
async def declared(api: httpx.AsyncClient, kube: KubeClient) -> AsyncIterator[Json]:
    yield await post_function(api, "declared", maxWorkers=3)
    await remove_function(api, kube, "declared")


async def stored(kube: KubeClient, name: str) -> Json:
    return await kube.get(GPU_FUNCTIONS.item(name, INSTANCES))


async def test_a_function_is_declared_shown_and_listed(
    api: httpx.AsyncClient, kube: KubeClient, declared: Json
) -> None:
    assert (declared["name"], declared["namespace"], declared["specName"]) == ("declared", INSTANCES, SPEC)
    assert (declared["image"], declared["maxWorkers"], declared["minWorkers"]) == ("example/words", 3, 0)
    assert (declared["ackWaitSeconds"], declared["maxAttempts"], declared["queueLimit"]) == (30, 3, 10_000)
    assert (declared["operationID"], declared["stack"]) == ("op-declared", "gpu-function/default.declared")

    function = await stored(kube, "declared")
    annotations = function["metadata"]["annotations"]
    assert json.loads(annotations[names.ANNOTATION_ACCEPTED_SPEC]) == function["spec"]
    shown = await api.get(f"{FUNCTIONS}/declared")
    assert shown.headers["ETag"] == f'"{function["metadata"]["uid"]}.1"'
    assert shown.json()["data"]["createdAt"] == declared["createdAt"]
    assert "declared" in [each["name"] for each in (await api.get(FUNCTIONS)).json()["data"]]
    operation = await kube.get(OPERATIONS.item(operation_name("default", "op-declared"), INSTANCES))
    assert (operation["status"]["phase"], operation["status"]["targetUid"]) == (
        "Succeeded",
        function["metadata"]["uid"],
    )


async def test_functions_are_listed_page_by_page(api: httpx.AsyncClient, kube: KubeClient) -> None:
    for name in ("page-1", "page-2", "page-3"):
        await post_function(api, name)
    seen: list[str] = []
    token: str | None = None
    while True:
        page = (await api.get(FUNCTIONS, params={"limit": 2, **({"continue": token} if token else {})})).json()
        assert len(page["data"]) <= 2
        seen += [each["name"] for each in page["data"]]
        token = page.get("continue")
        if token is None:
            break
    assert [name for name in seen if name.startswith("page-")] == ["page-1", "page-2", "page-3"]
    for name in ("page-1", "page-2", "page-3"):
        await remove_function(api, kube, name)


@pytest.mark.usefixtures("declared")
async def test_a_replay_answers_200_with_the_same_function(api: httpx.AsyncClient, kube: KubeClient) -> None:
    before = await stored(kube, "declared")
    reordered = dict(reversed(build_function_request("declared", maxWorkers=3, minWorkers=0, template={}).items()))
    answers = await asyncio.gather(*(api.post(FUNCTIONS, json=reordered) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["data"]["name"] for answer in answers} == {"declared"}
    assert (await stored(kube, "declared"))["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.usefixtures("declared")
async def test_another_payload_or_a_taken_name_is_a_conflict(api: httpx.AsyncClient, kube: KubeClient) -> None:
    other = await api.post(FUNCTIONS, json=build_function_request("declared", maxWorkers=4))
    assert (other.status_code, code_of(other)) == (409, "operation_conflict")
    taken = await api.post(
        FUNCTIONS, json=build_function_request("declared", maxWorkers=3) | {"operationID": "another"}
    )
    assert (taken.status_code, code_of(taken)) == (409, "operation_conflict")
    assert "choose another name" in taken.json()["error"]["message"]
    # Nothing was accepted: the operationID is free again.
    assert await find(kube, OPERATIONS.item(operation_name("default", "another"), INSTANCES)) is None


BAD_REQUESTS: dict[str, tuple[Json, str]] = {
    "no image": ({"image": ""}, "image"),
    "bad name": ({"name": "Not_A_Name"}, "name"),
    "a dot in the name": ({"name": "a.b"}, "name"),
    "metacharacters": ({"name": "a.>"}, "name"),
    "name too long": ({"name": "a" * 31}, "name"),
    "unknown spec": ({"specName": "unknown"}, "specName"),
    "more at least than at most": ({"minWorkers": 2}, "minWorkers"),
    "no workers at most": ({"maxWorkers": 0}, "maxWorkers"),
    "a number as text": ({"concurrency": "2"}, "concurrency"),
    "an unknown field": ({"colour": "red"}, "colour"),
    "an unknown field inside": ({"framework": {"port": 1}}, "framework.port"),
    "a socket elsewhere": ({"framework": {"socketPath": "/etc/passwd"}}, "framework.socketPath"),
    "a path that leaves": ({"framework": {"socketPath": "/tmp/serverless-framework/.."}}, "framework.socketPath"),
    "env twice": ({"template": {"envs": [{"name": "A"}, {"name": "A"}]}}, "template.envs[1].name"),
}


@pytest.mark.parametrize("problem", BAD_REQUESTS)
async def test_what_cannot_be_is_refused_by_field_and_nothing_is_recorded(
    api: httpx.AsyncClient, kube: KubeClient, problem: str
) -> None:
    fields, field = BAD_REQUESTS[problem]
    answer = await api.post(FUNCTIONS, json=build_function_request("bad-request") | fields)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == [field]
    assert await find(kube, OPERATIONS.item(operation_name("default", "op-bad-request"), INSTANCES)) is None


async def test_an_unknown_spec_is_answered_with_those_that_there_are(api: httpx.AsyncClient) -> None:
    answer = await api.post(FUNCTIONS, json=build_function_request("unknown-spec", specName="unknown"))
    assert SPEC in answer.json()["error"]["message"]


async def test_a_change_is_of_the_function_as_it_was_seen(
    api: httpx.AsyncClient, kube: KubeClient, declared: Json
) -> None:
    etag = (await api.get(f"{FUNCTIONS}/declared")).headers["ETag"]
    changed = await api.put(f"{FUNCTIONS}/declared", json={"concurrency": 4}, headers={"If-Match": etag})
    assert changed.status_code == 200
    assert (changed.json()["data"]["concurrency"], changed.json()["data"]["maxWorkers"]) == (4, declared["maxWorkers"])
    assert changed.headers["ETag"] != etag
    function = await stored(kube, "declared")
    assert json.loads(function["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC])["concurrency"] == 4

    late = await api.put(f"{FUNCTIONS}/declared", json={"concurrency": 5}, headers={"If-Match": etag})
    assert (late.status_code, code_of(late)) == (412, "precondition_failed")
    same = await api.put(f"{FUNCTIONS}/declared", json={"concurrency": 4})
    assert (same.status_code, same.headers["ETag"]) == (200, changed.headers["ETag"])
    impossible = await api.put(f"{FUNCTIONS}/declared", json={"minWorkers": 9})
    assert (impossible.status_code, impossible.json()["error"]["details"][0]["field"]) == (400, "minWorkers")
    fixed = await api.put(f"{FUNCTIONS}/declared", json={"specName": "g1.1"})
    assert (fixed.status_code, fixed.json()["error"]["details"][0]["field"]) == (400, "specName")
    assert (await api.put(f"{FUNCTIONS}/missing", json={})).status_code == 404


@pytest.mark.usefixtures("declared")
async def test_an_edit_behind_the_api_is_put_back_and_is_no_part_of_the_next_change(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await kube.patch(GPU_FUNCTIONS.item("declared", INSTANCES), {"spec": {"image": "example/edited"}}, PatchType.MERGE)

    async def is_back() -> bool:
        return bool((await stored(kube, "declared"))["spec"]["image"] == "example/words")

    await eventually(is_back)
    changed = await api.put(f"{FUNCTIONS}/declared", json={"queueLimit": 5})
    assert (changed.json()["data"]["image"], changed.json()["data"]["queueLimit"]) == ("example/words", 5)


@pytest.mark.usefixtures("declared")
async def test_another_tenant_sees_and_touches_nothing(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async with tenant(kube, str(api.base_url), Role.EDITOR) as other:
        assert (await other.api.get(FUNCTIONS)).json()["data"] == []
        for method, path in (("GET", ""), ("GET", "/health"), ("GET", "/stack"), ("DELETE", ""), ("PUT", "")):
            body = {"queueLimit": 1} if method == "PUT" else None
            answer = await other.api.request(method, f"{FUNCTIONS}/declared{path}", json=body)
            assert (answer.status_code, code_of(answer)) == (404, "function_not_found"), (method, path)
        # The same operationID and name are another function there.
        assert (await other.api.post(FUNCTIONS, json=build_function_request("declared"))).status_code == 201
        assert (await other.api.get(f"{FUNCTIONS}/declared")).json()["data"]["namespace"] == other.namespace
    assert (await api.get(f"{FUNCTIONS}/declared")).json()["data"]["maxWorkers"] == 3


@pytest.mark.usefixtures("declared")
async def test_health_is_answered_also_without_workers(api: httpx.AsyncClient) -> None:
    answer = await api.get(f"{FUNCTIONS}/declared/health")
    assert answer.status_code == 200
    health = answer.json()["data"]
    assert health["state"] in ("ready", "cold", "starting", "failing", "queue_unavailable")
    assert (health["workers"], health["readyWorkers"]) == (0, 0)
    unknown = await api.get(f"{FUNCTIONS}/missing/health")
    assert (unknown.status_code, code_of(unknown)) == (404, "function_not_found")


async def test_parity_63_a_unit_that_takes_calls_shows_where_they_come_from(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    serverless = {"requestID": "joined", "framework": {"invokePath": "/run"}}
    async with stock_pool(kube, "joining", 1, specName=SPEC):
        answer = await api.post(UNITS, json=rest_unit("joins", serverless=serverless))
        assert answer.status_code == 201, answer.text
        view = answer.json()["data"]
        assert (view["serverless"]["requestID"], view["serverless"]["minAvailableCount"]) == ("joined", 0)
        assert view["serverlessStatus"] == {
            "consumer": "default_joined",
            "socketPath": "/tmp/serverless-framework/framework.sock",
            "invokePath": "/run",
            "healthPath": "/healthz",
        }
        changed = await api.put(f"{UNITS}/joins", json={"serverless": {"requestID": "other"}})
        assert changed.json()["data"]["serverlessStatus"]["consumer"] == "default_other"
        bad = await api.post(UNITS, json=rest_unit("joins-not", serverless={"requestID": "a.b"}))
        assert (bad.status_code, bad.json()["error"]["details"][0]["field"]) == (400, "serverless.requestID")
        await remove_unit(api, kube, "joins")
    # Those that were made after the unit.
    for function in ("joined", "other"):
        if await find(kube, GPU_FUNCTIONS.item(function, INSTANCES)) is not None:
            await remove_function(api, kube, function)


async def test_a_worker_on_this_machine_answers_as_documented_with_what_dev_env_sets(
    api: httpx.AsyncClient, kube: KubeClient, cluster: RunningCluster
) -> None:
    """There is no stock of its spec: nothing else can answer."""
    await post_function(api, "words", maxAttempts=1)
    words = (sys.executable, "-m", "gpu_platform.cli", "worker", "examples/functions/words.py:count")
    environment = {**os.environ, **cluster.environment(os.environ["PATH"])}
    worker = await asyncio.create_subprocess_exec(*words, cwd=ROOT, env=environment)
    try:
        request = {"serverlessRequestID": "words", "payload": {"text": "the rest is silence"}}
        accepted = await api.post("/api/v1/serverless/invocations", json=request)
        assert accepted.status_code == 202, accepted.text
        path = f"/api/v1/serverless/invocations/{accepted.json()['data']['invocationID']}"

        async def is_answered() -> Json | NotYet:
            call = (await api.get(path)).json()["data"]
            return call if call["state"] == "succeeded" else NotYet(call)

        call = await eventually(is_answered)
        assert call["result"]["body"] == {"words": 4, "attempt": 1}
        assert call["worker"].endswith(f"-{worker.pid}")
        worker.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(worker.wait(), 180) == 0
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
        await remove_function(api, kube, "words")
