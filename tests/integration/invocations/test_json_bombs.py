"""JSON of which much more is built than was sent: refused over its bytes, before anything is built from it.

And what must not change with that: payloads reach workers as they were, and a replay is compared as parsed JSON.
"""

import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from gpu_platform.nats.subjects import record_subject
from tests.support import earlier_invocations
from tests.support.api import UNITS, api_process, code_of, open_api, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.invocations import INVOCATIONS, SERVERLESS, Ground, open_ground
from tests.support.tenants import key_of
from tests.support.waiting import eventually

HEADERS = {"Content-Type": "application/json"}
MIB = 1 << 20
BOMBS = {
    "lists": b"[" + b"[]," * (5 * MIB) + b"1]",
    "objects": b"[" + b"{}," * (5 * MIB) + b"1]",
    "texts": b"[" + b'"",' * (5 * MIB) + b"1]",
    "members": b"{" + b'"a":{},' * (2 * MIB) + b'"b":1}',
    "deep": b"[" * (7 * MIB) + b"]" * (7 * MIB),
    "without-an-end": b'["' + rb"\"" * (7 * MIB),
}
ROOM = 200 * MIB
"""For a body of 15 MiB, some copies of it, and what Python keeps. The values of `lists` take 600 MiB."""

ECHO = """
from serverless import handler

@handler(concurrency=2)
def echo(payload):
    return payload
"""


@pytest.fixture(scope="module")
async def ground(
    kube: KubeClient, cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    async with open_ground(kube, cluster, tmp_path_factory.mktemp("bombs")) as made:
        yield made


def request_of(function: str, payload: bytes, **fields: Any) -> bytes:
    """With the function's name at the end: it is known only after all of it was looked at."""
    said = json.dumps({**fields, "serverlessRequestID": function}).encode()
    return b'{"payload": %b, %b' % (payload, said[1:])


async def post(api: httpx.AsyncClient, body: bytes, path: str = INVOCATIONS) -> httpx.Response:
    return await api.post(path, content=body, headers=HEADERS, timeout=60)


async def is_accepted(api: httpx.AsyncClient, body: bytes) -> bool:
    return (await post(api, body)).status_code == 202


def read_peak(pid: int) -> int:
    """Bytes of memory that a process ever had."""
    [line] = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


async def test_an_invokers_bomb_is_refused_before_anything_is_built_from_it(
    ground: Ground, cluster: RunningCluster
) -> None:
    function = await ground.function(f"f-{secrets.token_hex(4)}")
    log = ground.root / f"api-{secrets.token_hex(4)}.log"
    async with (
        api_process(cluster.api_kubeconfig, log, ground.api_settings) as (daemon, url),
        open_api(url, ground.acme.key) as api,
    ):
        await wait_ready(api)
        await eventually(partial(is_accepted, api, request_of(function, b'"%b"' % (b"x" * 15 * MIB))))
        stored, before = await ground.count_stored(), read_peak(daemon.pid)
        async with key_of(ground.kube, url, ground.acme.name, Role.INVOKER) as (invoker, _):
            for name, bomb in BOMBS.items():
                for asked in (function, "missing"):
                    answer = await post(invoker, request_of(asked, bomb))
                    assert (answer.status_code, code_of(answer)) == (400, "invalid_request"), (name, answer.text)
        grown = read_peak(daemon.pid) - before
        assert await ground.count_stored() == stored

    assert grown < ROOM, f"{grown >> 20} MiB"


async def test_the_refusal_names_the_limit(ground: Ground) -> None:
    many = await post(ground.acme.api, request_of("missing", BOMBS["lists"]))
    deep = await post(ground.acme.api, request_of("missing", BOMBS["deep"]))

    assert "the body has more than 200000 values" in many.json()["error"]["message"]
    assert "the body is nested deeper than 201 levels" in deep.json()["error"]["message"]


@pytest.mark.parametrize("path", [UNITS, f"{SERVERLESS}/functions", "/api/v1/gpu-storages", INVOCATIONS])
async def test_every_body_has_bounds(ground: Ground, path: str) -> None:
    many = await post(ground.acme.api, b'{"name": [' + b"[]," * 20_000 + b"1]}", path)
    deep = await post(ground.acme.api, b'{"name": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", path)

    assert (many.status_code, deep.status_code) == (400, 400)
    assert "has more than 20000 values" in many.json()["error"]["message"]
    assert "is nested deeper than 201 levels" in deep.json()["error"]["message"]


async def test_key_role_function_and_room_come_before_the_payload_is_parsed(ground: Ground) -> None:
    """By a payload whose brackets are fine, and which is no JSON."""
    name = f"f-{secrets.token_hex(4)}"
    wrong = b"[1 2]"
    async with open_api(ground.url, None) as nobody, open_api(ground.url, "gk_wrong") as stranger:
        assert (await post(nobody, request_of(name, wrong))).status_code == 401
        assert (await post(stranger, request_of(name, BOMBS["lists"]))).status_code == 401
    async with key_of(ground.kube, ground.url, ground.acme.name, Role.VIEWER) as (viewer, _):
        assert (await post(viewer, request_of(name, wrong))).status_code == 403
    missing = await post(ground.acme.api, request_of(name, wrong))
    assert (missing.status_code, code_of(missing)) == (404, "function_not_found")
    await ground.function(name, queueLimit=1)
    refused = await post(ground.acme.api, request_of(name, wrong))
    assert (refused.status_code, code_of(refused)) == (400, "invalid_request")
    assert refused.json()["error"]["details"][0]["field"] == "payload"
    # A refused one takes no room.
    assert (await post(ground.acme.api, request_of(name, b"1"))).status_code == 202
    full = await post(ground.acme.api, request_of(name, wrong))
    assert (full.status_code, code_of(full)) == (429, "queue_full")


async def test_a_record_of_an_earlier_version_is_replayed(ground: Ground) -> None:
    function = await ground.function(f"f-{secrets.token_hex(4)}")
    now = now_utc()
    record = json.loads(earlier_invocations.RECORD) | {
        "tenant": ground.acme.name,
        "acceptedAt": now.isoformat(),
        "expiresAt": (now + timedelta(hours=1)).isoformat(),
    }
    request = earlier_invocations.REQUEST.replace(b'"sync"', b'"async"')
    words = await ground.function(record["function"])
    await ground.js.publish(record_subject(ground.acme.name, "frozen-1", words), json.dumps(record).encode())

    again = await post(ground.acme.api, request)
    assert (again.status_code, again.json()["data"]["invocationID"]) == (200, "frozen-1"), again.text
    other = await post(ground.acme.api, request.replace(b"1.10", b"1.11"))
    assert (other.status_code, code_of(other)) == (409, "operation_conflict")
    elsewhere = await post(ground.acme.api, request.replace(b'"words"', b'"%b"' % function.encode()))
    assert elsewhere.status_code == 409


@pytest.mark.parametrize("padding", ["", "é" * 100_000], ids=["in-the-record", "beside-it"])
async def test_a_worker_gets_the_payload_and_a_replay_is_compared_as_parsed_json(
    ground: Ground, tmp_path: Path, padding: str
) -> None:
    function = await ground.function(f"f-{secrets.token_hex(4)}")
    (tmp_path / "echo.py").write_text(ECHO)
    sent = (
        rb'{"b": [1.10, 1e5, -0.0, null, {}, []], "a": "\u00e9 \ud83d\ude00", "payload": 1, "c": "%b"}'
        % padding.encode()
    )
    value = {"c": padding, "payload": 1, "a": "é 😀", "b": [1.1, 100_000.0, -0.0, None, {}, []]}
    call_id = f"echo-{secrets.token_hex(4)}"
    first = await post(ground.acme.api, request_of(function, sent, invocationID=call_id))
    assert first.status_code == 202, first.text
    again = await post(ground.acme.api, request_of(function, json.dumps(value).encode(), invocationID=call_id))
    other = await post(ground.acme.api, request_of(function, json.dumps([value]).encode(), invocationID=call_id))
    assert (again.status_code, other.status_code) == (200, 409)

    place = replace(ground.workers(function), handler=f"{tmp_path / 'echo.py'}:echo")
    async with place.worker():
        over = await ground.ends(call_id)
        synced = await post(ground.acme.api, request_of(function, sent, mode="sync"))
    assert (over["state"], over["result"]["statusCode"]) == ("succeeded", 200)
    assert over["result"]["body"] == synced.json()["data"]["result"]["body"] == value
    assert ("resultBytes" in over) == bool(padding)
