"""Renting over REST: the seed's contract for units, check by check."""

from collections.abc import AsyncIterator

import httpx
import pytest

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_UNITS, OPERATIONS
from tests.support.admission import refused_image
from tests.support.api import UNITS, code_of
from tests.support.cluster_processes import frozen
from tests.support.clusters import RunningCluster
from tests.support.units_and_stock import (
    INSTANCES,
    STOCK,
    ensure_spec,
    find,
    get_unit,
    stock_of,
    stock_pool,
    wait_pool_available,
)
from tests.support.units_api import (
    SPEC,
    delete_operations,
    post_ready_unit,
    remove_unit,
    rest_unit,
    spec_body,
    wait_unit_view,
)
from tests.support.waiting import eventually

HELD = "example.com/held-by-a-test"
HTTP = {"ports": [{"name": "http", "port": 8080}]}


@pytest.fixture(scope="module", autouse=True)
async def spec(kube: KubeClient) -> None:
    """A spec of our own: nobody else's stock is counted or taken."""
    await ensure_spec(kube, spec_body(SPEC))


@pytest.fixture
async def pool(kube: KubeClient) -> AsyncIterator[Json]:
    async with stock_pool(kube, "rest", 2, specName=SPEC) as filled:
        yield filled


@pytest.fixture
async def rented(api: httpx.AsyncClient, kube: KubeClient, pool: Json) -> AsyncIterator[Json]:
    """A Ready unit."""
    assert pool
    yield await post_ready_unit(api, "rented", template=HTTP)
    await remove_unit(api, kube, "rented")


async def free_stock(kube: KubeClient) -> list[str]:
    return sorted(
        stock["metadata"]["name"]
        for stock in await stock_of(kube, "rest")
        if names.ANNOTATION_CLAIMED_BY not in (stock["metadata"].get("annotations") or {})
    )


@pytest.mark.usefixtures("pool")
async def test_parity_16_a_unit_takes_the_place_of_ready_stock(api: httpx.AsyncClient, kube: KubeClient) -> None:
    before = await free_stock(kube)
    uids = {stock["metadata"]["name"]: stock["metadata"]["uid"] for stock in await stock_of(kube, "rest")}
    answer = await api.post(UNITS, json=rest_unit("parity-16", image="example/mine"))
    assert answer.status_code == 201
    view = answer.json()["data"]
    assert (view["memory"], view["gpu"], view["image"]) == ("2Gi", 1, "example/mine")
    assert (view["lifecycle"], view["namespace"]) == ("instance", INSTANCES)
    assert view["sourceStockName"] in before
    assert (await api.get(f"{UNITS}/parity-16")).json()["data"]["name"] == "parity-16"
    await wait_unit_view(api, "parity-16", "Ready")

    async def is_consumed() -> bool:
        # The refill may have its name, but is another one.
        stock = await find(kube, GPU_UNITS.item(view["sourceStockName"], STOCK))
        return stock is None or stock["metadata"]["uid"] != uids[view["sourceStockName"]]

    await eventually(is_consumed)
    await remove_unit(api, kube, "parity-16")


async def test_parity_17_without_free_stock_the_answer_is_409_and_nothing_changed(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    answer = await api.post(UNITS, json=rest_unit("parity-17"))
    assert (answer.status_code, code_of(answer)) == (409, "insufficient_capacity")
    assert (await api.get(f"{UNITS}/parity-17")).status_code == 404
    async with stock_pool(kube, "rest", 1, specName=SPEC):
        # The same operationID may try again: nothing was accepted.
        assert (await api.post(UNITS, json=rest_unit("parity-17"))).status_code == 201
        await remove_unit(api, kube, "parity-17")


async def test_parity_19_a_replay_answers_200_with_the_same_unit_and_takes_no_more_stock(
    api: httpx.AsyncClient, kube: KubeClient, rented: Json
) -> None:
    await wait_pool_available(kube, "rest", 2)
    before = await free_stock(kube)
    reordered = dict(reversed(rest_unit("rented", template=HTTP, access={"scheme": "http"}).items()))
    answer = await api.post(UNITS, json=reordered)
    assert answer.status_code == 200
    assert answer.json()["data"]["sourceStockName"] == rented["sourceStockName"]
    assert await free_stock(kube) == before


@pytest.mark.usefixtures("rented")
async def test_parity_20_another_payload_or_a_taken_name_is_a_conflict(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    other_payload = await api.post(UNITS, json=rest_unit("rented", image="example/other"))
    assert (other_payload.status_code, code_of(other_payload)) == (409, "operation_conflict")
    unknown_spec = await api.post(UNITS, json=rest_unit("rented", specName="unknown"))
    assert (unknown_spec.status_code, code_of(unknown_spec)) == (409, "operation_conflict")
    taken_name = await api.post(UNITS, json=rest_unit("rented") | {"operationID": "another"})
    assert (taken_name.status_code, code_of(taken_name)) == (409, "operation_conflict")
    await wait_pool_available(kube, "rest", 2)


BAD_REQUESTS: dict[str, tuple[Json, str]] = {
    "no image": ({"image": ""}, "image"),
    "bad name": ({"name": "Not_A_Name"}, "name"),
    "name too long": ({"name": "a" * 41}, "name"),
    "env twice": ({"template": {"envs": [{"name": "A", "value": "1"}, {"name": "A"}]}}, "template.envs[1].name"),
    "port name twice": (
        {"template": {"ports": [{"name": "http", "port": 1}, {"name": "http", "port": 2}]}},
        "template.ports[1].name",
    ),
    "port twice": (
        {"template": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}},
        "template.ports[1].port",
    ),
    "port 0": ({"template": {"ports": [{"name": "http", "port": 0}]}}, "template.ports[0].port"),
    "port 70000": ({"template": {"ports": [{"name": "http", "port": 70_000}]}}, "template.ports[0].port"),
    "primary port unknown": ({"template": HTTP, "access": {"primaryPort": "other"}}, "access.primaryPort"),
    "primary port without ports": ({"access": {"primaryPort": "http"}}, "access.primaryPort"),
    "unknown spec": ({"specName": "unknown"}, "specName"),
    "another namespace": ({"namespace": "runtime-stock"}, "namespace"),
    "another stock namespace": ({"stockNamespace": "elsewhere"}, "stockNamespace"),
    "unknown field": ({"memory": "1Gi"}, "memory"),
    "a number as text": ({"template": {"ports": [{"name": "http", "port": "80"}]}}, "template.ports[0].port"),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
async def test_parity_21_a_bad_request_is_400_and_names_the_field(
    api: httpx.AsyncClient, kube: KubeClient, case: str
) -> None:
    fields, field = BAD_REQUESTS[case]
    answer = await api.post(UNITS, json=rest_unit("parity-21") | fields)
    assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
    assert [detail["field"] for detail in answer.json()["error"]["details"]] == [field]
    operations = (await kube.get(OPERATIONS.collection(INSTANCES)))["items"]
    assert not [each for each in operations if each["spec"]["operationID"] == "op-parity-21"]


async def test_parity_22_protocol_scheme_and_primary_port_have_defaults(rented: Json) -> None:
    assert rented["template"]["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert rented["access"] == {"primaryPort": "http", "scheme": "http"}
    assert rented["accessURL"] == f"http://unit-rented.{INSTANCES}.svc.cluster.local:8080"


@pytest.mark.usefixtures("pool")
async def test_parity_24_a_unit_that_kubernetes_refuses_leaves_its_stock_claimable(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    before = await free_stock(kube)
    # A policy of the cluster is what our own checks cannot know.
    async with refused_image(kube, SPEC, "example/forbidden"):
        answer = await api.post(UNITS, json=rest_unit("parity-24", image="example/forbidden"))
        assert answer.status_code == 400, answer.text
        assert "not here" in answer.json()["error"]["message"]
    assert await free_stock(kube) == before
    assert (await api.post(UNITS, json=rest_unit("parity-24"))).status_code == 201
    await remove_unit(api, kube, "parity-24")


@pytest.mark.usefixtures("pool")
async def test_parity_25_an_unknown_unit_is_404_and_a_deleted_one_goes(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    for method, path in (
        ("GET", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("POST", "/stop"),
        ("POST", "/start"),
        ("POST", "/restart"),
        ("GET", "/events"),
        ("GET", "/logs"),
        ("GET", "/address"),
    ):
        body = {"image": "a"} if method == "PUT" else None
        answer = await api.request(method, f"{UNITS}/nobody{path}", json=body)
        assert (answer.status_code, code_of(answer)) == (404, "gpuunit_not_found"), path
    await post_ready_unit(api, "parity-25")
    assert (await api.delete(f"{UNITS}/parity-25")).status_code == 204
    shown = await api.get(f"{UNITS}/parity-25")
    assert shown.status_code == 404 or shown.json()["data"]["phase"] == "Terminating"
    await remove_unit(api, kube, "parity-25")


@pytest.mark.usefixtures("pool")
async def test_a_replay_after_the_deletion_is_refused_also_while_the_unit_is_terminating(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    await post_ready_unit(api, "leaving")
    path = GPU_UNITS.item("leaving", INSTANCES)
    # Until the test removes it, the unit stays Terminating.
    await kube.patch(path, {"metadata": {"finalizers": [HELD]}})
    assert (await api.delete(f"{UNITS}/leaving")).status_code == 204
    assert (await api.get(f"{UNITS}/leaving")).json()["data"]["phase"] == "Terminating"

    replayed = await api.post(UNITS, json=rest_unit("leaving"))
    assert (replayed.status_code, code_of(replayed)) == (409, "operation_conflict")
    assert "is being deleted" in replayed.json()["error"]["message"]

    async def nothing_else_holds_it() -> bool:
        return bool((await kube.get(path))["metadata"]["finalizers"] == [HELD])

    await eventually(nothing_else_holds_it)
    await kube.patch(path, {"metadata": {"finalizers": []}})
    replayed = await api.post(UNITS, json=rest_unit("leaving"))
    assert (replayed.status_code, code_of(replayed)) == (409, "operation_conflict")
    assert "has been deleted" in replayed.json()["error"]["message"]
    await delete_operations(kube, "leaving")


async def test_parity_26_a_change_keeps_what_it_does_not_name(api: httpx.AsyncClient, rented: Json) -> None:
    path = f"{UNITS}/rented"
    image_only = (await api.put(path, json={"image": "example/next"})).json()["data"]
    assert (image_only["image"], image_only["template"]) == ("example/next", rented["template"])
    other_port = {"template": {"ports": [{"name": "web", "port": 9090}]}}
    moved = (await api.put(path, json=other_port)).json()["data"]
    assert moved["access"] == {"primaryPort": "web", "scheme": "http"}
    assert moved["image"] == "example/next"
    unchanged = (await api.put(path, json=other_port)).json()["data"]
    assert unchanged["generation"] == moved["generation"]
    wrong = await api.put(path, json={"access": {"primaryPort": "http"}})
    assert (wrong.status_code, wrong.json()["error"]["details"][0]["field"]) == (400, "access.primaryPort")


@pytest.mark.usefixtures("rented")
async def test_a_change_or_deletion_with_a_stale_etag_is_412(api: httpx.AsyncClient) -> None:
    path = f"{UNITS}/rented"
    etag = (await api.get(path)).headers["ETag"]
    first = await api.put(path, json={"image": "example/first"}, headers={"If-Match": etag})
    assert first.status_code == 200
    second = await api.put(path, json={"image": "example/second"}, headers={"If-Match": etag})
    assert (second.status_code, code_of(second)) == (412, "precondition_failed")
    deleted = await api.delete(path, headers={"If-Match": etag})
    assert (deleted.status_code, code_of(deleted)) == (412, "precondition_failed")
    again = await api.put(path, json={"image": "example/second"}, headers={"If-Match": first.headers["ETag"]})
    assert again.status_code == 200


@pytest.mark.usefixtures("rented")
async def test_the_accepted_spec_is_written_with_the_spec(api: httpx.AsyncClient, kube: KubeClient) -> None:
    await api.put(f"{UNITS}/rented", json={"image": "example/recorded"})
    unit = await get_unit(kube, "rented")
    accepted = unit["metadata"]["annotations"][names.ANNOTATION_ACCEPTED_SPEC]
    assert '"image":"example/recorded"' in accepted


@pytest.mark.usefixtures("rented")
async def test_a_unit_of_somebody_elses_stack_is_theirs_to_change(api: httpx.AsyncClient, kube: KubeClient) -> None:
    owner = {"metadata": {"annotations": {names.ANNOTATION_OWNER_STACK: "acme/prod"}}}
    await kube.patch(GPU_UNITS.item("rented", INSTANCES), owner)
    for request in (
        api.put(f"{UNITS}/rented", json={"image": "example/mine"}),
        api.post(f"{UNITS}/rented/stop"),
        api.delete(f"{UNITS}/rented"),
    ):
        answer = await request
        assert (answer.status_code, code_of(answer)) == (409, "operation_conflict")
        assert "acme/prod" in answer.json()["error"]["message"]
    owner["metadata"]["annotations"][names.ANNOTATION_OWNER_STACK] = None  # type: ignore[assignment]
    await kube.patch(GPU_UNITS.item("rented", INSTANCES), owner)


@pytest.mark.usefixtures("pool")
async def test_a_named_stock_unit_is_taken_or_none(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    *_, youngest = await free_stock(kube)
    # Awake, it would soon make another one of that name.
    with frozen(cluster, "reconciler"):
        answer = await api.post(UNITS, json=rest_unit("chosen", stockName=youngest))
        again = await api.post(UNITS, json=rest_unit("chosen-again", stockName=youngest))
    assert answer.json()["data"]["sourceStockName"] == youngest
    assert (again.status_code, code_of(again)) == (409, "insufficient_capacity")
    await remove_unit(api, kube, "chosen")


@pytest.mark.usefixtures("rented")
async def test_a_stopped_unit_frees_its_gpus_and_starts_in_the_place_of_other_stock(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    assert (await api.post(f"{UNITS}/rented/stop")).status_code == 200
    stopped = await wait_unit_view(api, "rented", "Stopped")
    assert "accessURL" not in stopped
    refused = await api.post(f"{UNITS}/rented/restart")
    assert (refused.status_code, code_of(refused)) == (409, "operation_conflict")
    # Awake, it would soon have put the unit into the place of its stock.
    with frozen(cluster, "reconciler"):
        started = await api.post(f"{UNITS}/rented/start")
        assert started.status_code == 200
        source = await find(kube, GPU_UNITS.item(started.json()["data"]["sourceStockName"], STOCK))
    assert source is not None
    assert source["metadata"]["annotations"][names.ANNOTATION_CLAIMED_BY] == f"{INSTANCES}/rented"
    again = await api.post(f"{UNITS}/rented/start")
    assert again.json()["data"]["sourceStockName"] == started.json()["data"]["sourceStockName"]
    await wait_unit_view(api, "rented", "Ready")
    await wait_pool_available(kube, "rest", 2)


async def test_a_stopped_unit_without_stock_to_start_from_stays_stopped(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with stock_pool(kube, "rest", 1, specName=SPEC):
        await post_ready_unit(api, "no-stock")
        await api.post(f"{UNITS}/no-stock/stop")
    answer = await api.post(f"{UNITS}/no-stock/start")
    assert (answer.status_code, code_of(answer)) == (409, "insufficient_capacity")
    assert (await api.get(f"{UNITS}/no-stock")).json()["data"]["running"] is False
    await remove_unit(api, kube, "no-stock")


async def test_seeded_stock_comes_back_for_a_unit_that_stops_and_starts(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    async with stock_pool(kube, "rest", 2, specName=SPEC, replenish="Never"):
        await post_ready_unit(api, "loan")
        await wait_pool_available(kube, "rest", 1)
        await api.post(f"{UNITS}/loan/stop")
        await wait_pool_available(kube, "rest", 2)
        await api.post(f"{UNITS}/loan/start")
        await wait_unit_view(api, "loan", "Ready")
        await wait_pool_available(kube, "rest", 1)
        await remove_unit(api, kube, "loan")
        await wait_pool_available(kube, "rest", 2)


@pytest.mark.usefixtures("rented")
async def test_a_restart_replaces_the_pod(api: httpx.AsyncClient, kube: KubeClient) -> None:
    async def pod_uids() -> set[str]:
        selector = {"labelSelector": f"{names.LABEL_UNIT}=rented"}
        pods = (await kube.get(f"/api/v1/namespaces/{INSTANCES}/pods", selector))["items"]
        return {pod["metadata"]["uid"] for pod in pods}

    before = await pod_uids()
    assert (await api.post(f"{UNITS}/rented/restart")).status_code == 200
    await wait_unit_view(api, "rented", "Ready")
    assert not before & await pod_uids()
