"""A unit that really runs, as its tenant meets it over REST: its address, its logs, its events."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from tests.support.api import UNITS, code_of, open_api, unit_request
from tests.support.clusters import RunningCluster
from tests.support.ssh_blocks import ssh_block
from tests.support.units_and_stock import create_unit, delete_unit, stock_pool, unit_body, wait_unit_phase
from tests.support.waiting import PATIENCE_SECONDS, NotYet, eventually

SERVER = {
    "command": ["python3", "-u", "-m", "http.server", "--bind", "$(POD_IP)", "8000"],
    "ports": [{"name": "http", "port": 8000}],
    "probes": {"readiness": {"http": {"port": "http"}, "periodSeconds": 1}},
}
FIRST_WORDS = "Serving HTTP on"


@pytest.fixture(scope="module")
async def web(kube: KubeClient, api: httpx.AsyncClient) -> AsyncIterator[str]:
    """The path of a unit on the host node: a web server that logs every request."""
    async with stock_pool(kube, "host-units", 1, specName="host.1", replenish="Never"):
        body = unit_request("host-web", specName="host.1", template=SERVER, stockName="host-units-0")
        made = await api.post(UNITS, json=body)
        assert made.status_code == 201, made.text
        path = f"{UNITS}/host-web"

        async def is_ready() -> bool | NotYet:
            """Also for the API, which follows the pods."""
            shown = (await api.get(path)).json()["data"]
            return (shown["phase"] == "Ready" and "accessURL" in shown) or NotYet(shown)

        await eventually(is_ready)
        yield path
        await delete_unit(kube, "host-web")


async def fetch(url: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(url)


async def address_of(api: httpx.AsyncClient, path: str) -> str:
    url: str = (await api.get(f"{path}/address")).json()["data"]["url"]
    return url


async def test_the_unit_is_shown_with_where_it_came_from_and_where_it_runs(api: httpx.AsyncClient, web: str) -> None:
    unit = (await api.get(web)).json()["data"]
    assert (unit["sourceStockName"], unit["sourceStockNamespace"]) == ("host-units-0", "runtime-stock")
    assert (unit["nodeName"], unit["readyReplicas"], unit["gpu"]) == ("host", 1, 1)
    assert unit["access"] == {"primaryPort": "http", "scheme": "http"}
    assert unit["accessURL"] == "http://unit-host-web.runtime-instance.svc.cluster.local:8000"


async def test_its_address_really_answers(api: httpx.AsyncClient, web: str) -> None:
    address = (await api.get(f"{web}/address")).json()["data"]
    assert address["reach"] == "host"
    answer = await fetch(address["url"])
    assert answer.status_code == 200
    assert "Directory listing" in answer.text


LATE_LISTENER = """
import pathlib, socketserver, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
socketserver.TCPServer((sys.argv[2], 8000), socketserver.BaseRequestHandler).serve_forever()
"""


async def test_a_tcp_probe_makes_a_unit_ready_once_its_port_takes_connections(
    api: httpx.AsyncClient, kube: KubeClient, tmp_path: Path
) -> None:
    gate = tmp_path / "listen"
    template = {
        "command": ["python3", "-c", LATE_LISTENER, str(gate), "$(POD_IP)"],
        "ports": [{"name": "raw", "port": 8000}],
        "probes": {"readiness": {"tcp": {"port": "raw"}, "periodSeconds": 1}},
    }
    async with stock_pool(kube, "tcp-units", 1, specName="host.1", replenish="Never"):
        asked = unit_request("host-tcp", specName="host.1", template=template, stockName="tcp-units-0")
        made = await api.post(UNITS, json=asked)
        assert made.status_code == 201, made.text

        async def is_refused() -> bool:
            happened = (await api.get(f"{UNITS}/host-tcp/events")).json()["data"]
            return any("readiness probe failed: ConnectionRefused" in event["message"] for event in happened)

        await eventually(is_refused)
        assert (await api.get(f"{UNITS}/host-tcp")).json()["data"]["phase"] != "Ready"
        gate.touch()
        await wait_unit_phase(kube, "host-tcp", "Ready")
        await delete_unit(kube, "host-tcp")


async def test_its_logs_are_what_it_has_written(api: httpx.AsyncClient, web: str) -> None:
    await fetch(f"{await address_of(api, web)}/from-a-test")

    async def written() -> httpx.Response | None:
        """The node reads what a process says a moment after it was said."""
        answer = await api.get(f"{web}/logs")
        return answer if "GET /from-a-test" in answer.text else None

    answer = await eventually(written)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text.startswith(FIRST_WORDS)


async def test_the_last_lines_of_the_logs_with_their_times(api: httpx.AsyncClient, web: str) -> None:
    await fetch(await address_of(api, web))

    async def last_line() -> str | None:
        answer = await api.get(f"{web}/logs", params={"tail": 1, "timestamps": "true"})
        [line] = answer.text.splitlines()
        return line if "GET" in line else None

    moment, _, _ = (await eventually(last_line)).partition(" ")
    assert datetime.fromisoformat(moment).tzinfo is not None


async def test_followed_logs_go_on_as_they_grow(api: httpx.AsyncClient, web: str) -> None:
    url = await address_of(api, web)
    params = {"follow": "true"}
    async with api.stream("GET", f"{web}/logs", params=params, timeout=PATIENCE_SECONDS) as answer:
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith(FIRST_WORDS)
        await fetch(f"{url}/while-we-watch")
        while "GET /while-we-watch" not in await anext(lines):
            pass


async def test_following_a_unit_that_is_silent_is_answered_all_the_same(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    silent = {"command": ["sleep", "1000"]}
    await create_unit(kube, unit_body("silent", specName="host.1", template=silent))
    await wait_unit_phase(kube, "silent", "Ready")
    path, params = f"{UNITS}/silent/logs", {"follow": "true"}
    # How soon: see test_streams.
    async with api.stream("GET", path, params=params, timeout=PATIENCE_SECONDS) as answer:
        assert answer.status_code == 200
    await delete_unit(kube, "silent")


async def test_logs_that_are_not_there_are_a_409_that_says_why(
    api: httpx.AsyncClient, kube: KubeClient, web: str
) -> None:
    before = await api.get(f"{web}/logs", params={"previous": "true"})
    assert (before.status_code, code_of(before)) == (409, "operation_conflict")
    await create_unit(kube, unit_body("logless", running=False))
    await wait_unit_phase(kube, "logless", "Stopped")
    stopped = await api.get(f"{UNITS}/logless/logs")
    assert (stopped.status_code, code_of(stopped)) == (409, "operation_conflict")
    assert "Stopped" in stopped.json()["error"]["message"]
    nowhere = await api.get(f"{UNITS}/logless/address")
    assert (nowhere.status_code, code_of(nowhere)) == (409, "operation_conflict")
    await delete_unit(kube, "logless")


async def test_the_logs_of_the_container_before_the_last_restart_are_kept(
    api: httpx.AsyncClient, kube: KubeClient
) -> None:
    twice = "[ -e /dev/shm/lived ] && echo second && exec sleep 1000; touch /dev/shm/lived; echo first; exit 3"
    await create_unit(kube, unit_body("reborn", specName="host.1", template={"command": ["sh", "-c", twice]}))

    async def words(**params: str) -> str:
        answer = await api.get(f"{UNITS}/reborn/logs", params=params)
        return answer.text if answer.status_code == 200 else ""

    async def is_reborn() -> bool:
        return await words() == "second\n"

    await eventually(is_reborn)
    assert await words(previous="true") == "first\n"
    await delete_unit(kube, "reborn")


async def test_the_logs_of_its_ssh_are_asked_for_by_container(
    api: httpx.AsyncClient, kube: KubeClient, web: str
) -> None:
    without = await api.get(f"{web}/logs", params={"container": "ssh-frpc"})
    assert (without.status_code, code_of(without)) == (404, "container_not_found")
    await create_unit(kube, unit_body("within", specName="host.1", ssh=ssh_block(connectHost="frp.example.com")))

    async def waits_for_its_image() -> bool:
        # The host node runs no images, and the sidecars are nothing else.
        answer = await api.get(f"{UNITS}/within/logs", params={"container": "ssh-frpc"})
        return answer.status_code == 409 and 'container "ssh-frpc"' in answer.json()["error"]["message"]

    await eventually(waits_for_its_image)
    await delete_unit(kube, "within")


async def test_its_events_tell_its_story_oldest_first(api: httpx.AsyncClient, web: str) -> None:
    async def told() -> list[Json]:
        events: list[Json] = (await api.get(f"{web}/events")).json()["data"]
        told = {event["reason"] for event in events if event["object"].startswith("Pod/")}
        return events if {"Scheduled", "Started"} <= told else []

    events = await eventually(told)
    # Some tell the time in whole seconds; and the scheduler may tell of its deed after the node told of its own.
    times = [datetime.fromisoformat(event["lastSeen"]).replace(microsecond=0) for event in events]
    assert times == sorted(times)
    for event in events:
        assert event["type"] in ("Normal", "Warning")
        assert event["count"] >= 1
        assert event["object"].partition("/")[0] in ("Pod", "GPUUnit")


async def test_a_unit_of_a_simulated_node_says_that_nothing_answers_and_has_no_logs(
    cluster: RunningCluster, api: httpx.AsyncClient, kube: KubeClient
) -> None:
    template = {"ports": [{"name": "web", "port": 80}]}
    await create_unit(kube, unit_body("inside", template=template, access={"primaryPort": "web", "scheme": "http"}))
    await wait_unit_phase(kube, "inside", "Ready")

    async def knows_the_pod() -> Json | None:
        shown: Json = (await api.get(f"{UNITS}/inside")).json()["data"]
        return shown if "accessURL" in shown else None

    shown = await eventually(knows_the_pod)
    assert shown["accessURL"] == "http://unit-inside.runtime-instance.svc.cluster.local:80"
    assert "proxyURL" not in shown
    nowhere = await api.get(f"{UNITS}/inside/address")
    assert (nowhere.status_code, code_of(nowhere)) == (409, "operation_conflict")
    assert "is on the simulated node" in nowhere.json()["error"]["message"]
    async with open_api(cluster.record.platform_url, cluster.record.api_key, patience=0) as impatient:
        logs = await impatient.get(f"{UNITS}/inside/logs")
    assert (logs.status_code, code_of(logs)) == (503, "service_unavailable")
    assert "https://" not in logs.text
    await delete_unit(kube, "inside")
