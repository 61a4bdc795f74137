"""Units called through the platform: real pods of the host node behind the real API."""

import hashlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import httpx
import pytest

from gpu_platform.devcluster.record import read_status
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import is_loopback
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import PODS
from tests.support import audited_api
from tests.support.api import UNITS, api_process, code_of, open_api, scrape, wait_ready
from tests.support.audited_api import read_peers
from tests.support.clusters import RunningCluster
from tests.support.tenants import key_of, tenant
from tests.support.units_and_stock import INSTANCES, create_unit, delete_unit, get_unit, unit_body, wait_unit_phase
from tests.support.waiting import PATIENCE_SECONDS, NotYet, eventually

PROGRAM = str(Path(__file__).parents[2] / "support" / "upstream_server.py")
TEMPLATE = {
    # Without its own directory among the places of modules: there is a `platform` there, which is not Python's.
    "command": [sys.executable, "-P", PROGRAM, "$(POD_IP)", "8000"],
    "ports": [{"name": "http", "port": 8000}, {"name": "dead", "port": 8001}],
    "probes": {"readiness": {"http": {"path": "/hanging", "port": "http"}, "periodSeconds": 1}},
}
CALLED = f"{UNITS}/called/proxy"
MEGABYTE = 1 << 20
HELD_AT_MOST = 48 * MEGABYTE
"""By which an API process may grow while it passes on much more than that."""


async def make_called(kube: KubeClient, name: str) -> Json:
    await create_unit(kube, unit_body(name, specName="host.1", template=TEMPLATE))
    return await wait_unit_phase(kube, name, "Ready")


@pytest.fixture(scope="module")
async def unit(kube: KubeClient, api: httpx.AsyncClient) -> AsyncIterator[str]:
    """Where the unit is called on its port `http`."""
    await make_called(kube, "called")
    await answered(api, f"{CALLED}/http/echo")
    yield f"{CALLED}/http"
    await delete_unit(kube, "called")


async def answered(api: httpx.AsyncClient, path: str) -> Json:
    """The unit's answer, once there is a whole one: it breaks off when the unit's process ends while it answers."""

    async def look() -> Json | NotYet:
        try:
            answer = await api.get(path)
        except httpx.RemoteProtocolError as error:
            return NotYet(error)
        assert answer.status_code in (200, 502, 503), answer.text
        return dict(answer.json()) if answer.status_code == 200 else NotYet(answer.text)

    return await eventually(look)


def error_of(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, code_of(answer)) == (status, code)
    message: str = answer.json()["error"]["message"]
    return message


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_the_unit_gets_method_path_query_and_body_as_they_were_sent(
    api: httpx.AsyncClient, unit: str, method: str
) -> None:
    answer = await api.request(method, f"{unit}/echo/a%2Fb/%2e%2e/c%0Ad?q=1%202&r", content=b"hello")
    assert answer.status_code == 200
    seen = answer.json()
    assert (seen["method"], seen["path"], seen["body"]) == (method, "/echo/a%2Fb/%2e%2e/c%0Ad?q=1%202&r", "hello")
    assert answer.headers["content-type"].startswith("application/json")


async def test_a_port_is_called_by_its_number_too(api: httpx.AsyncClient, unit: str) -> None:
    del unit
    assert (await api.get(f"{CALLED}/8000/echo")).json()["path"] == "/echo"


async def test_the_key_is_not_the_units_to_see_and_the_truth_about_the_caller_is(
    api: httpx.AsyncClient, unit: str, cluster: RunningCluster
) -> None:
    told = {"Prefix": "/", "For": "6.6.6.6", "Proto": "https", "Host": "evil.example.com"}
    forged = {
        **{f"X-Forwarded-{name}": value for name, value in told.items()},
        "Forwarded": "for=1.2.3.4",
        "Connection": "X-Hop",
        "X-Hop": "1",
    }
    answer = await api.get(f"{unit}/echo", headers={**forged, "X-Request-ID": "call-7", "X-Own": "kept"})
    headers = answer.json()["headers"]
    assert cluster.record.api_key not in answer.text
    assert {"authorization", "forwarded", "x-hop"}.isdisjoint(headers)
    assert headers["host"] == [f"unit-called.{INSTANCES}.svc.cluster.local:8000"]
    assert headers["x-forwarded-for"] == ["127.0.0.1"]
    assert headers["x-forwarded-host"] == [api.base_url.netloc.decode()]
    assert headers["x-forwarded-proto"] == ["http"]
    assert headers["x-forwarded-prefix"] == [unit]
    assert headers["x-request-id"] == ["call-7"]
    assert headers["x-own"] == ["kept"]
    assert answer.headers["x-request-id"] == "call-7"


async def test_a_redirect_is_the_callers_to_follow(api: httpx.AsyncClient, unit: str) -> None:
    answer = await api.get(f"{unit}/redirect", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (302, "/echo/elsewhere")
    assert answer.headers["set-cookie"] == "seen=1"


async def test_events_arrive_one_by_one(api: httpx.AsyncClient, unit: str) -> None:
    async with api.stream("GET", f"{unit}/events", timeout=PATIENCE_SECONDS) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.aiter_lines()
        assert await anext(lines) == "data: first"
        assert (await api.post(f"{unit}/go-on")).status_code == 204
        assert [line async for line in lines if line] == ["data: second"]


async def test_a_websocket_talks_through(cluster: RunningCluster, api: httpx.AsyncClient, unit: str) -> None:
    key = {"Authorization": f"Bearer {cluster.record.api_key}"}
    url = str(api.base_url.join(f"{unit}/ws"))
    async with (
        aiohttp.ClientSession(headers=key) as session,
        session.ws_connect(url, protocols=("chat",), compress=15) as socket,
    ):
        assert socket.protocol == "chat"
        await socket.send_str("hello")
        assert await socket.receive_str() == "HELLO"
        await socket.ping(b"there?")
        blob = bytes(range(256)) * 2_048
        await socket.send_bytes(blob)
        assert await socket.receive_bytes() == blob
        await socket.send_str("bye")
        goodbye = await socket.receive()
        assert (goodbye.type, goodbye.data) == (aiohttp.WSMsgType.CLOSE, 4_001)


async def test_a_websocket_without_a_key_is_a_401(api: httpx.AsyncClient, unit: str) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(str(api.base_url.join(f"{unit}/ws")))
    assert refused.value.status == 401


async def test_bodies_of_any_size_pass_without_being_held(
    cluster: RunningCluster, unit: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("api") / "log"
    async with (
        api_process(cluster.api_kubeconfig, log) as (daemon, url),
        open_api(url, cluster.record.api_key) as api,
    ):
        await wait_ready(api)
        await api.get(f"{unit}/echo")
        before = peak_memory(daemon.pid)
        part, count = b"y" * MEGABYTE, 96

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(count):
                yield part

        sent = (await api.post(f"{unit}/digest", content=parts(), timeout=PATIENCE_SECONDS)).json()
        assert sent == {"length": count * MEGABYTE, "sha256": hashlib.sha256(part * count).hexdigest()}
        received = 0
        async with api.stream(
            "GET", f"{unit}/large", params={"chunks": count * 16}, timeout=PATIENCE_SECONDS
        ) as answer:
            async for data in answer.aiter_raw():
                received += len(data)
        assert received == count * MEGABYTE
        assert peak_memory(daemon.pid) - before < HELD_AT_MOST


async def test_a_process_that_is_told_to_stop_cuts_what_is_open(
    cluster: RunningCluster, unit: str, tmp_path: Path
) -> None:
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log") as (daemon, url),
        open_api(url, cluster.record.api_key) as api,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {cluster.record.api_key}"}) as session,
    ):
        await wait_ready(api)
        await answered(api, f"{unit}/echo")
        async with session.ws_connect(f"{url}{unit}/ws") as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "HELLO"
            daemon.signal(signal.SIGTERM)
            assert await daemon.ends() == 0
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        [line] = [entry for entry in daemon.entries() if entry.get("path") == f"{unit}/ws"]
        assert (line["status"], line["tenant"]) == (101, "default")


def peak_memory(pid: int) -> int:
    """In bytes."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1_024


async def test_a_caller_who_hangs_up_is_gone_for_the_unit_too(api: httpx.AsyncClient, unit: str) -> None:
    async def hanging(count: int) -> bool:
        return bool((await api.get(f"{unit}/hanging")).json() == count)

    async with api.stream("GET", f"{unit}/hang") as answer:
        assert answer.status_code == 200
        await eventually(lambda: hanging(1))
    await eventually(lambda: hanging(0))


@pytest.mark.parametrize("port", ["8002", "ssh", "22"])
async def test_a_port_that_is_not_declared_is_a_404(api: httpx.AsyncClient, unit: str, port: str) -> None:
    del unit
    message = error_of(await api.get(f"{CALLED}/{port}/"), 404, "port_not_found")
    assert "http (8000/TCP), dead (8001/TCP)" in message


async def test_a_unit_that_is_not_there_is_a_404(api: httpx.AsyncClient) -> None:
    error_of(await api.get(f"{UNITS}/missing/proxy/http/"), 404, "gpuunit_not_found")


async def test_a_port_on_which_nobody_listens_is_a_502(api: httpx.AsyncClient, unit: str) -> None:
    del unit
    message = error_of(await api.get(f"{CALLED}/dead/"), 502, "bad_gateway")
    assert message == "the unit 'called' does not answer: port 8001 refused the connection"


async def test_a_unit_that_breaks_off_before_its_answer_is_a_502(api: httpx.AsyncClient, unit: str) -> None:
    assert "broke off" in error_of(await api.get(f"{unit}/break"), 502, "bad_gateway")


async def test_nothing_dials_beyond_loopback_for_a_unit_on_a_simulated_node(
    cluster: RunningCluster, kube: KubeClient, unit: str, tmp_path: Path
) -> None:
    record = tmp_path / "dialled"
    await create_unit(kube, unit_body("pretended", template={"ports": TEMPLATE["ports"]}))
    node = (await wait_unit_phase(kube, "pretended", "Ready"))["status"]["nodeName"]
    settings = {audited_api.RECORD_VARIABLE: str(record)}
    async with (
        api_process(cluster.api_kubeconfig, tmp_path / "log", settings, module=audited_api.MODULE) as (_, url),
        open_api(url, cluster.record.api_key) as api,
    ):
        await wait_ready(api)
        await answered(api, f"{unit}/echo")
        for method in ("GET", "POST"):
            refused = await api.request(method, f"{UNITS}/pretended/proxy/http/")
            assert f"is on the simulated node {node!r}" in error_of(refused, 503, "not_ready")
    dialled = set(record.read_text().split())
    real = {pod["metadata"]["annotations"][names.ANNOTATION_HOST_ADDRESS] for pod in await pods_of_unit(kube, "called")}
    assert real <= dialled
    assert [host for host in dialled if not is_loopback(host)] == []
    await delete_unit(kube, "pretended")


def test_no_process_of_the_cluster_is_connected_with_another_machine(cluster: RunningCluster) -> None:
    processes = read_status(cluster.directory).processes
    peers = {each.name: read_peers(each.pid) for each in processes if each.pid and each.state == "ready"}
    assert peers["api"]
    assert peers["kube-apiserver"]
    beyond = {name: [host for host in hosts if not host.is_loopback] for name, hosts in peers.items()}
    assert not any(beyond.values()), beyond


async def test_a_stopped_unit_is_a_503_that_says_so_and_shows_no_url(api: httpx.AsyncClient, kube: KubeClient) -> None:
    await create_unit(kube, unit_body("idle-web", specName="host.1", template=TEMPLATE, running=False))
    await wait_unit_phase(kube, "idle-web", "Stopped")
    answer = await api.get(f"{UNITS}/idle-web/proxy/http/")
    assert error_of(answer, 503, "not_ready") == "the unit 'idle-web' is stopped; start it"
    assert answer.headers["retry-after"] == "1"
    shown = (await api.get(f"{UNITS}/idle-web")).json()["data"]
    assert {"accessURL", "proxyURL"}.isdisjoint(shown)
    await delete_unit(kube, "idle-web")


async def test_a_unit_on_its_way_up_is_a_503_in_the_words_of_its_status(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    never = {**TEMPLATE, "probes": {"readiness": {"command": ["false"], "periodSeconds": 1}}}
    await create_unit(kube, unit_body("slow", specName="host.1", template=never))
    await wait_unit_phase(kube, "slow", "Progressing")

    async def is_progressing() -> bool | NotYet:
        """The API follows the cluster: for a moment it knows the unit without its status."""
        message = error_of(await api.get(f"{UNITS}/slow/proxy/http/"), 503, "not_ready")
        return message.startswith("the unit 'slow' is Progressing") or NotYet(message)

    await eventually(is_progressing)
    await delete_unit(kube, "slow")


async def test_another_tenants_unit_is_a_404_and_a_viewer_may_not_call(
    cluster: RunningCluster, kube: KubeClient, unit: str
) -> None:
    url = cluster.record.platform_url
    async with tenant(kube, url, Role.EDITOR) as stranger:
        error_of(await stranger.api.get(f"{unit}/echo"), 404, "gpuunit_not_found")
    async with key_of(kube, url, "default", Role.VIEWER) as (viewer, _):
        for method in ("GET", "POST"):
            error_of(await viewer.request(method, f"{unit}/echo"), 403, "forbidden")
    async with key_of(kube, url, "default", Role.EDITOR) as (editor, _):
        assert (await editor.get(f"{unit}/echo")).status_code == 200
    async with open_api(url, None) as nobody:
        error_of(await nobody.get(f"{unit}/echo"), 401, "unauthenticated")


async def test_a_pod_that_says_it_is_the_units_from_another_namespace_gets_no_call(
    api: httpx.AsyncClient, kube: KubeClient, namespace: str, unit: str
) -> None:
    """Its labels are those of the unit's own pod, and it is newer."""
    uid = (await get_unit(kube, "called"))["metadata"]["uid"]
    labels = {**names.unit_labels("called"), names.LABEL_UNIT_UID: uid}
    spec = {"containers": [{"name": "main", "image": "example/thief"}]}
    thief = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief", "labels": labels}, "spec": spec}
    await kube.create(PODS.collection(namespace), thief)

    async def is_ready() -> bool:
        status = (await kube.get(PODS.item("thief", namespace)))["status"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))

    await eventually(is_ready)
    assert [(await api.get(f"{unit}/echo")).status_code for _ in range(5)] == [200] * 5


async def test_the_urls_of_a_unit_are_shown_while_it_can_be_called(api: httpx.AsyncClient, unit: str) -> None:
    shown = (await api.get(f"{UNITS}/called")).json()["data"]
    assert shown["accessURL"] == f"http://unit-called.{INSTANCES}.svc.cluster.local:8000"
    assert shown["proxyURL"] == f"{str(api.base_url).rstrip('/')}{unit}/"
    assert (await api.get(f"{shown['proxyURL']}echo")).status_code == 200
    assert (await api.get(f"{UNITS}/called/address")).json()["data"]["proxyURL"] == shown["proxyURL"]


async def test_calls_follow_the_unit_through_a_restart_and_a_replacement(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    path = f"{UNITS}/moving/proxy/http/echo"
    first = await make_called(kube, "moving")
    pids = [(await answered(api, path))["pid"]]

    await api.post(f"{UNITS}/moving/proxy/http/die")
    pids.append(await other_pid(api, path, pids))

    [pod] = await pods_of_unit(kube, "moving")
    await kube.delete(PODS.item(pod["metadata"]["name"], INSTANCES))
    pids.append(await other_pid(api, path, pids))

    await delete_unit(kube, "moving")

    async def is_forgotten() -> bool | NotYet:
        """The API follows the cluster: for a moment it still knows a unit that was deleted behind its back."""
        try:
            answer = await api.get(path)
        except httpx.RemoteProtocolError as error:
            return NotYet(error)
        return code_of(answer) == "gpuunit_not_found" if answer.status_code == 404 else NotYet(answer.text)

    await eventually(is_forgotten)
    second = await make_called(kube, "moving")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    pids.append(await other_pid(api, path, pids))
    await delete_unit(kube, "moving")


async def pods_of_unit(kube: KubeClient, name: str) -> list[Json]:
    uid = (await get_unit(kube, name))["metadata"]["uid"]
    selector = {"labelSelector": f"{names.LABEL_UNIT_UID}={uid}"}
    return list((await kube.get(PODS.collection(INSTANCES), selector))["items"])


async def other_pid(api: httpx.AsyncClient, path: str, seen: list[int]) -> int:
    async def look() -> int | None:
        pid: int = (await answered(api, path))["pid"]
        return pid if pid not in seen else None

    return await eventually(look)


async def test_calls_are_counted_and_none_is_left_open(api: httpx.AsyncClient, unit: str) -> None:
    await api.get(f"{unit}/echo")
    text = await scrape(api)
    assert 'gpu_platform_api_proxied_total{outcome="answered"}' in text
    assert 'route="/api/v1/gpu-units/{name}/proxy/{port}/{path:rest}"' in text
    assert "called" not in text

    async def is_idle() -> bool:
        return "gpu_platform_api_proxied_open 0.0" in await scrape(api)

    await eventually(is_idle)
