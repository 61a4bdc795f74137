"""Calls that are refused, and calls while NATS is away: nothing is stored of the first, nothing lost of the second."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from tests.support.api import api_process, code_of, open_api, probe, scrape, wait_ready
from tests.support.clusters import RunningCluster
from tests.support.function_workers import GATED
from tests.support.invocations import INVOCATIONS, SERVERLESS, Ground, open_ground
from tests.support.tenants import key_of
from tests.support.waiting import NotYet, eventually

LIMIT = 1 << 20
FUNCTION = "words"


@pytest.fixture(scope="module")
async def ground(
    kube: KubeClient, cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    settings = {"GPU_PLATFORM_API_MAX_INVOCATION_BYTES": str(LIMIT)}
    async with open_ground(kube, cluster, tmp_path_factory.mktemp("refused"), settings) as made:
        await made.function(FUNCTION)
        yield made


BAD_BODIES: list[dict[str, Any]] = [
    *({"serverlessRequestID": bad} for bad in ("", "*", ">", "a.*", "words.>", "WORDS", "a b", "a\r\n", "x" * 31, 1)),
    *({"invocationID": bad} for bad in ("", "*", ">", "a.b", "a.>", "$KV.invocations", "a b", "a\r\nb", "x" * 129)),
    *({"mode": bad} for bad in ("both", "", None, 1)),
    *({"timeoutSeconds": bad} for bad in (-1, 1 << 40, "1", 0.5)),
    *({"headers": bad} for bad in ({"a\r\nb": "c"}, {"a": "b\r\nNats-TTL: 1"}, {"Nats-Rollup": "all"}, {"a": 1})),
    *({"attributes": bad} for bad in ({"": "a"}, {"a": "\x00"}, {"a": None})),
    {"contentType": "a\r\nb"},
    {"replySubject": "_INBOX.a"},
    {"tenant": "umbrella"},
]


async def test_bad_input_is_refused_by_its_field_and_nothing_is_stored(ground: Ground) -> None:
    before = await ground.count_stored()
    for bad in BAD_BODIES:
        answer = await ground.invoke(FUNCTION, **bad)
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request"), (bad, answer.text)
        [field] = bad
        assert any(each["field"].startswith(field) for each in answer.json()["error"]["details"]), (bad, answer.text)
    for raw in (b"{", b"[]", b'{"serverlessRequestID":"words","serverlessRequestID":"other"}', b"\xff", b"null"):
        answer = await ground.acme.api.post(INVOCATIONS, content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, raw
    for path in ("*", "%3E", "a.b", "a%20b", "..%2f..", "%24KV", "x" * 129):
        for answer in (
            await ground.acme.api.get(f"{INVOCATIONS}/{path}"),
            await ground.acme.api.post(f"{INVOCATIONS}/{path}/cancel"),
            await ground.acme.api.post(f"{INVOCATIONS}/{path}/retry"),
            await ground.acme.api.delete(f"{SERVERLESS}/functions/{path}/queue"),
        ):
            assert answer.status_code in (400, 404, 405), (path, answer.text)
    for params in ({"function": "*"}, {"function": ">"}, {"state": "done"}, {"limit": "0"}, {"continue": "-1"}):
        assert (await ground.acme.api.get(INVOCATIONS, params=params)).status_code == 400, params
    assert await ground.count_stored() == before


async def test_a_body_beyond_the_limit_is_refused_and_one_below_it_is_not(ground: Ground) -> None:
    before = await ground.count_stored()
    too_large = await ground.invoke(FUNCTION, payload="x" * LIMIT)
    assert (too_large.status_code, code_of(too_large)) == (413, "body_too_large")

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"serverlessRequestID":"words","payload":"'
        for _ in range(20):
            yield b"x" * (LIMIT // 16)
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    unannounced = await ground.acme.api.post(INVOCATIONS, content=parts(), headers=headers)
    assert (unannounced.status_code, code_of(unannounced)) == (413, "body_too_large")
    elsewhere = await ground.acme.api.post("/api/v1/gpu-units", json={"name": "x" * 200_000})
    assert elsewhere.status_code == 413
    assert await ground.count_stored() == before

    assert (await ground.invoke(FUNCTION, payload="x" * (LIMIT - 1_000))).status_code == 202


async def test_a_full_queue_refuses_new_calls_and_still_knows_the_old_ones(ground: Ground) -> None:
    await ground.function("narrow", queueLimit=3)
    made = [await ground.accept("narrow", invocationID=f"narrow-{number}") for number in range(3)]
    refused = await ground.invoke("narrow", invocationID="narrow-3")

    assert (refused.status_code, code_of(refused)) == (429, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1
    assert (await ground.acme.api.get(f"{INVOCATIONS}/narrow-3")).status_code == 404
    assert (await ground.invoke("narrow", invocationID="narrow-0")).status_code == 200
    await ground.acme.api.post(f"{INVOCATIONS}/{made[0]}/cancel")

    async def has_room() -> bool:
        return (await ground.invoke("narrow", invocationID="narrow-3")).status_code == 202

    await eventually(has_room, every=0.3)


async def test_a_crowd_does_not_overfill_a_queue(ground: Ground) -> None:
    await ground.function("crowded", queueLimit=5)
    answers = await asyncio.gather(*(ground.invoke("crowded") for _ in range(40)))

    assert sorted(answer.status_code for answer in answers) == [202] * 5 + [429] * 35


async def test_while_nats_is_away_calls_are_refused_and_what_was_accepted_is_there_afterwards(ground: Ground) -> None:
    before = [await ground.accept(FUNCTION, invocationID=f"kept-{number}") for number in range(5)]
    views = [await ground.look(each) for each in before]
    ground.server.kill()
    try:
        async with open_api(ground.url, ground.acme.key, patience=0) as api:
            for answer in (
                await api.post(INVOCATIONS, json={"serverlessRequestID": FUNCTION, "invocationID": "in-vain"}),
                await api.get(f"{INVOCATIONS}/kept-0"),
                await api.get(INVOCATIONS),
                await api.post(f"{INVOCATIONS}/kept-0/cancel"),
            ):
                assert answer.status_code == 503, answer.text
                assert int(answer.headers["Retry-After"]) >= 1
                assert "NATS" in answer.json()["error"]["message"]
        # Everything else is served.
        assert (await ground.acme.api.get("/api/v1/gpu-units")).status_code == 200
        assert (await probe(ground.acme.api, "/readyz")).status_code == 200
        health = (await ground.acme.api.get("/api/v1/health")).json()["data"]
        assert any("NATS" in cause for cause in health["degraded"])
    finally:
        await ground.server.start()
    await eventually(ground.is_connected)

    assert [await ground.look(each) for each in before] == views
    replayed = await ground.invoke(FUNCTION, invocationID="kept-0")
    assert (replayed.status_code, replayed.json()["data"]) == (200, views[0])
    async with ground.workers(FUNCTION).worker():
        assert {(await ground.ends(each))["state"] for each in before} == {"succeeded"}


async def test_a_full_disk_of_nats_is_named_until_the_server_is_restarted(ground: Ground, kube: KubeClient) -> None:
    kept = await ground.accept(FUNCTION, invocationID="before-full")
    before = await ground.look(kept)
    ground.server.fill_disk()
    async with (
        key_of(kube, ground.url, ground.acme.name, Role.OPERATOR) as (_, operator_key),
        open_api(ground.url, ground.acme.key, patience=0) as api,
        open_api(ground.url, operator_key) as operator,
    ):

        async def refusal() -> str | NotYet:
            answer = await api.post(INVOCATIONS, json={"serverlessRequestID": FUNCTION}, timeout=60)
            assert (answer.status_code, code_of(answer)) == (503, "service_unavailable"), answer.text
            assert int(answer.headers["Retry-After"]) >= 1
            message: str = answer.json()["error"]["message"]
            assert "TimeoutError" not in message
            return message if "storage full" in message else NotYet(message)

        await eventually(refusal)
        # Room alone does not mend it, and everybody can see what is wrong.
        ground.server.empty_disk()
        assert "storage full" in await eventually(refusal)
        health = (await api.get("/api/v1/health")).json()["data"]
        assert health["natsConnected"]
        assert "storage full (file too large)" in health["natsError"]
        assert any("No calls of functions are taken" in each and "storage full" in each for each in health["degraded"])
        metrics = (await scrape(operator)).splitlines()
        assert {"runtime_nats_up 1.0", "runtime_nats_writable 0.0"} <= set(metrics)
        for path in (f"{INVOCATIONS}/{kept}/cancel", f"{INVOCATIONS}/{kept}/retry"):
            answer = await api.post(path)
            assert answer.status_code in (409, 503), answer.text
            assert answer.status_code == 409 or "storage full" in answer.json()["error"]["message"], answer.text
        # What was accepted can be read, and is answered again.
        assert await ground.look(kept) == before

        await ground.restart_server()

        async def is_good() -> bool | NotYet:
            health = (await api.get("/api/v1/health")).json()["data"]
            return not any("NATS" in cause for cause in health["degraded"]) or NotYet(health["degraded"])

        await eventually(is_good)
        assert "runtime_nats_writable 1.0" in (await scrape(operator)).splitlines()
    assert (await ground.invoke(FUNCTION)).status_code == 202
    async with ground.workers(FUNCTION).worker():
        assert (await ground.ends(kept))["state"] == "succeeded"


async def test_a_caller_who_waits_is_answered_although_nats_was_restarted(ground: Ground, tmp_path: Path) -> None:
    await ground.function("gated")
    gate = tmp_path / "go"
    async with replace(ground.workers("gated"), handler=GATED).worker():
        fields = {"invocationID": "patient", "payload": {"until": str(gate)}}
        waiting = asyncio.create_task(ground.invoke("gated", mode="sync", **fields))
        await ground.comes_to("patient", "running")
        await ground.restart_server()
        gate.touch()
        answer = await waiting

    assert answer.status_code == 200, answer.text
    assert answer.json()["data"]["state"] == "succeeded"


async def test_an_api_that_was_killed_between_record_and_queue_leaves_a_call_that_is_queued_by_asking_again(
    ground: Ground, kube: KubeClient, cluster: RunningCluster
) -> None:
    body = {"serverlessRequestID": FUNCTION, "invocationID": "half", "payload": {"text": "a"}}
    log = ground.root / "dying-api.log"
    async with api_process(cluster.api_kubeconfig, log, ground.api_settings, "api.call-recorded") as (daemon, url):
        async with open_api(url, None) as api:
            await wait_ready(api)
            async with key_of(kube, url, ground.acme.name, Role.INVOKER) as (invoker, _):
                with pytest.raises(httpx.TransportError):
                    await invoker.post(INVOCATIONS, json=body)
        assert await daemon.ends() == -9
    assert (await ground.look("half"))["state"] == "queued"
    again = await ground.acme.api.post(INVOCATIONS, json=body)
    assert again.status_code == 200
    async with ground.workers(FUNCTION).worker():
        assert (await ground.ends("half"))["attempts"] == 1


async def test_without_nats_the_api_says_so(ground: Ground, kube: KubeClient, cluster: RunningCluster) -> None:
    """Also where a server is named that never was."""

    async def look(name: str, settings: Mapping[str, str]) -> None:
        log = ground.root / f"lonely-{name}.log"
        async with api_process(cluster.api_kubeconfig, log, settings) as (_, url), open_api(url, None) as api:
            await wait_ready(api)
            async with (
                key_of(kube, url, ground.acme.name, Role.EDITOR) as (_, key),
                open_api(url, key, patience=0) as editor,
            ):
                answer = await editor.post(INVOCATIONS, json={"serverlessRequestID": FUNCTION})
                assert (answer.status_code, code_of(answer)) == (503, "service_unavailable")
                assert "NATS" in json.loads(answer.text)["error"]["message"]
                assert (await editor.get("/api/v1/gpu-units")).status_code == 200

    await asyncio.gather(look("unnamed", {}), look("never", {"GPU_PLATFORM_API_NATS_URL": "nats://127.0.0.1:1"}))
