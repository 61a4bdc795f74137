"""Calls over the API, with real workers on a real nats-server: accepted once, run, looked at, ended, tried again."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.tenants import Role
from gpu_platform.kube import KubeClient
from tests.support.api import code_of
from tests.support.clusters import RunningCluster
from tests.support.function_workers import GATED
from tests.support.invocations import DEAD_LETTERS, INVOCATIONS, SERVERLESS, Ground, open_ground
from tests.support.server_events import watching
from tests.support.tenants import key_of, tenant
from tests.support.waiting import eventually

WORKED, IDLE = "words", "idle"


@pytest.fixture(scope="module")
async def ground(
    kube: KubeClient, cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    """One function with a worker, and one without."""
    async with open_ground(kube, cluster, tmp_path_factory.mktemp("calls")) as made:
        await made.function(WORKED)
        await made.function(IDLE)
        async with made.workers(WORKED).worker():
            yield made


async def pages(ground: Ground, path: str, **params: Any) -> list[Json]:
    found: list[Json] = []
    token: str | None = None
    while True:
        asked = {**params, **({"continue": token} if token else {})}
        page = (await ground.acme.api.get(path, params=asked)).json()
        found += page["data"]
        if not (token := page.get("continue")):
            return found


async def test_parity_50_a_sync_call_is_answered_with_its_result(ground: Ground) -> None:
    answer = await ground.invoke(WORKED, mode="sync", invocationID="sync-1", headers={"X-A": "b"})

    assert answer.status_code == 200, answer.text
    view = answer.json()["data"]
    assert (view["invocationID"], view["serverlessRequestID"], view["mode"]) == ("sync-1", WORKED, "sync")
    assert (view["state"], view["attempts"], view["worker"]) == ("succeeded", 1, "worker")
    assert (view["result"]["statusCode"], view["result"]["body"]) == (200, {"words": 3, "attempt": 1})
    times = [view[name] for name in ("acceptedAt", "queuedAt", "startedAt", "finishedAt", "expiresAt")]
    assert times == sorted(times)
    assert await ground.look("sync-1") == view


async def test_parity_48_an_async_call_is_accepted_under_an_id_and_can_be_looked_at(ground: Ground) -> None:
    answer = await ground.invoke(WORKED)

    assert answer.status_code == 202
    view = answer.json()["data"]
    assert (view["state"], view["mode"], view["attempts"]) == ("queued", "async", 0)
    assert view["invocationID"].startswith("inv-")
    assert answer.headers["Location"] == f"{INVOCATIONS}/{view['invocationID']}"
    over = await ground.ends(view["invocationID"])
    assert (over["state"], over["result"]["body"]) == ("succeeded", {"words": 3, "attempt": 1})


async def test_a_failing_function_is_an_answer_too(ground: Ground) -> None:
    answer = await ground.invoke(WORKED, mode="sync", payload={"text": None})

    view = answer.json()["data"]
    assert (answer.status_code, view["state"], view["result"]["statusCode"]) == (200, "failed", 500)
    assert "AttributeError" in view["result"]["error"]


async def test_a_wait_that_ends_first_leaves_the_caller_with_the_id(ground: Ground) -> None:
    answer = await ground.invoke(IDLE, mode="sync", timeoutSeconds=1)

    assert answer.status_code == 202
    view = answer.json()["data"]
    assert (view["state"], answer.headers["Location"]) == ("queued", f"{INVOCATIONS}/{view['invocationID']}")


async def test_a_call_that_waits_says_how_its_function_is(ground: Ground) -> None:
    hopeless = await ground.function("hopeless", specName="missing.1")

    async def has_failed() -> bool:
        function = (await ground.acme.api.get(f"{SERVERLESS}/functions/{hopeless}")).json()["data"]
        return bool(function["phase"] == "Failed")

    await eventually(has_failed)
    answer = await ground.invoke(hopeless, mode="sync", timeoutSeconds=1)

    view = answer.json()["data"]
    assert (answer.status_code, view["state"]) == (202, "queued")
    state = view["functionState"]
    assert (state["phase"], state["reason"]) == ("Failed", "InvalidSpec")
    assert "there is no GPUSpec 'missing.1'" in state["message"]
    waiting = await ground.accept(hopeless)
    assert (await ground.look(waiting))["functionState"] == state
    await ground.acme.api.post(f"{INVOCATIONS}/{waiting}/cancel")
    assert "functionState" not in await ground.look(waiting)


async def test_a_replay_is_the_same_call_and_is_not_run_again(ground: Ground) -> None:
    first = await ground.invoke(WORKED, invocationID="replayed")
    over = await ground.ends("replayed")
    again = await ground.invoke(WORKED, invocationID="replayed")
    waited = await ground.invoke(WORKED, invocationID="replayed", mode="sync")

    assert (first.status_code, again.status_code, waited.status_code) == (202, 200, 200)
    assert again.json()["data"] == waited.json()["data"] == over
    for other in ({"payload": 1}, {"timeoutSeconds": 9}, {"headers": {"a": "b"}}):
        refused = await ground.invoke(WORKED, invocationID="replayed", **other)
        assert (refused.status_code, code_of(refused)) == (409, "operation_conflict")
    refused = await ground.invoke(IDLE, invocationID="replayed")
    assert (refused.status_code, code_of(refused)) == (409, "operation_conflict")
    assert await ground.look("replayed") == over


async def test_of_many_who_send_one_id_at_once_one_makes_the_call(ground: Ground) -> None:
    answers = await asyncio.gather(*(ground.invoke(WORKED, invocationID="crowd") for _ in range(20)))

    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [202]
    assert (await ground.ends("crowd"))["attempts"] == 1


async def test_another_tenants_id_is_another_call(ground: Ground, kube: KubeClient) -> None:
    await ground.accept(IDLE, invocationID="mine")
    async with tenant(kube, ground.url, Role.EDITOR) as other:
        await ground.function(IDLE, other)
        body = {"serverlessRequestID": IDLE, "invocationID": "mine", "payload": "theirs"}
        assert (await other.api.post(INVOCATIONS, json=body)).status_code == 202
        assert (await other.api.post(f"{INVOCATIONS}/mine/cancel")).status_code == 200
        assert [call["invocationID"] for call in (await other.api.get(INVOCATIONS)).json()["data"]] == ["mine"]
        unknown = await other.api.get(f"{INVOCATIONS}/replayed")
        assert (unknown.status_code, code_of(unknown)) == (404, "invocation_not_found")

    assert (await ground.look("mine"))["state"] == "queued"


async def test_an_unknown_function_is_not_found(ground: Ground) -> None:
    for answer in (
        await ground.invoke("nobody", invocationID="for-nobody"),
        await ground.acme.api.delete(f"{SERVERLESS}/functions/nobody/queue"),
    ):
        assert (answer.status_code, code_of(answer)) == (404, "function_not_found")
    assert (await ground.acme.api.get(f"{INVOCATIONS}/for-nobody")).status_code == 404


async def test_a_waiting_call_that_is_cancelled_never_runs(ground: Ground) -> None:
    await ground.accept(IDLE, invocationID="unwanted")
    cancelled = await ground.acme.api.post(f"{INVOCATIONS}/unwanted/cancel")

    assert (cancelled.status_code, cancelled.json()["data"]["state"]) == (200, "cancelled")
    again = await ground.acme.api.post(f"{INVOCATIONS}/unwanted/cancel")
    assert (again.status_code, code_of(again)) == (409, "operation_conflict")
    async with ground.workers(IDLE).worker():
        marker = await ground.accept(IDLE)
        await ground.ends(marker)
    view = await ground.look("unwanted")
    assert (view["state"], view["attempts"], view["reason"]) == ("cancelled", 0, "Cancelled")


async def test_a_running_call_that_is_cancelled_ends(ground: Ground) -> None:
    await ground.accept(WORKED, invocationID="stopped", payload={"text": "", "delay": 60})
    await ground.comes_to("stopped", "running")
    asked = await ground.acme.api.post(f"{INVOCATIONS}/stopped/cancel")

    assert (asked.status_code, asked.json()["data"]["cancelAsked"]) == (200, True)
    assert (await ground.ends("stopped"))["state"] == "cancelled"


async def test_a_call_that_takes_too_long_expires(ground: Ground) -> None:
    answer = await ground.invoke(WORKED, invocationID="slow", timeoutSeconds=10, payload={"text": "", "delay": 60})
    assert answer.status_code == 202
    view = await ground.ends("slow")

    assert (view["state"], view["reason"], view["attempts"]) == ("expired", "DeadlinePassed", 1)


async def test_the_functions_own_timeout_counts_where_the_caller_says_none(ground: Ground) -> None:
    await ground.function("timed", timeoutSeconds=7)
    timed = (await ground.invoke("timed")).json()["data"]
    said = (await ground.invoke("timed", timeoutSeconds=9)).json()["data"]
    untimed = (await ground.invoke(IDLE)).json()["data"]

    lengths = [_seconds(view["acceptedAt"], view["expiresAt"]) for view in (timed, said, untimed)]
    assert lengths == [7, 9, 72 * 3_600]


async def test_an_ended_call_is_tried_again_as_another_one(ground: Ground) -> None:
    await ground.accept(WORKED, invocationID="first-try")
    over = await ground.ends("first-try")
    again = await ground.acme.api.post(f"{INVOCATIONS}/first-try/retry")
    twice = await ground.acme.api.post(f"{INVOCATIONS}/first-try/retry")

    assert (again.status_code, twice.status_code) == (202, 200)
    view = again.json()["data"]
    assert (view["retryOf"], twice.json()["data"]["invocationID"]) == ("first-try", view["invocationID"])
    assert (await ground.ends(view["invocationID"]))["result"] == over["result"]
    assert await ground.look("first-try") == over

    waiting = await ground.accept(IDLE)
    refused = await ground.acme.api.post(f"{INVOCATIONS}/{waiting}/retry")
    assert (refused.status_code, code_of(refused)) == (409, "operation_conflict")


async def test_dead_letters_are_listed_and_driven_once_more(ground: Ground) -> None:
    poison = await ground.accept(WORKED, invocationID="poison", payload={"text": "a", "crash": 3})
    view = await ground.ends(poison)
    assert (view["state"], view["attempts"]) == ("dead_lettered", 3)
    assert "no answer" in view["reason"]

    assert [call["invocationID"] for call in await pages(ground, DEAD_LETTERS, function=WORKED)] == ["poison"]
    assert await pages(ground, DEAD_LETTERS, function=IDLE) == []
    redriven = (await ground.acme.api.post(f"{DEAD_LETTERS}/redrive", json={"function": WORKED})).json()["data"]
    assert (redriven["redriven"], redriven["known"], redriven["more"]) == (1, 0, False)
    [again] = redriven["ids"]
    once_more = (await ground.acme.api.post(f"{DEAD_LETTERS}/redrive", json={"ids": ["poison"]})).json()["data"]
    assert (once_more["redriven"], once_more["known"], once_more["ids"]) == (0, 1, [])
    assert (await ground.look(again))["retryOf"] == "poison"
    # It would take the worker along three times more.
    await ground.acme.api.post(f"{INVOCATIONS}/{again}/cancel")
    await ground.ends(again)
    not_dead = await ground.acme.api.post(f"{DEAD_LETTERS}/redrive", json={"ids": ["sync-1"]})
    assert (not_dead.status_code, code_of(not_dead)) == (409, "operation_conflict")


async def test_a_purge_cancels_what_waits_and_leaves_what_runs(ground: Ground, tmp_path: Path) -> None:
    await ground.function("purged")
    gate = tmp_path / "go"
    async with replace(ground.workers("purged"), handler=GATED).worker():
        running = [await ground.accept("purged", payload={"until": str(gate)}) for _ in range(2)]
        for each in running:
            await ground.comes_to(each, "running")
        waiting = [await ground.accept("purged") for _ in range(5)]
        purged = await ground.acme.api.delete(f"{SERVERLESS}/functions/purged/queue")

        assert (purged.status_code, purged.json()["data"]) == (200, {"cancelled": 5})
        assert {(await ground.look(each))["state"] for each in waiting} == {"cancelled"}
        gate.touch()
        assert {(await ground.ends(each))["state"] for each in running} == {"succeeded"}


async def test_calls_are_listed_page_by_page_and_narrowed_down(ground: Ground) -> None:
    await ground.function("listed")
    made = [await ground.accept("listed") for _ in range(7)]
    for each in made[:3]:
        await ground.acme.api.post(f"{INVOCATIONS}/{each}/cancel")

    whole = await pages(ground, INVOCATIONS, function="listed", limit=2)
    assert [call["invocationID"] for call in whole] == [*made[3:], *made[:3]]
    queued = await pages(ground, INVOCATIONS, function="listed", state="queued", limit=3)
    assert [call["invocationID"] for call in queued] == made[3:]
    assert await pages(ground, INVOCATIONS, function="listed", state="failed") == []
    first = (await ground.acme.api.get(INVOCATIONS, params={"function": "listed", "limit": 7})).json()
    assert (len(first["data"]), first.get("continue")) == (7, None)


async def test_changes_are_told_as_they_come_and_none_is_missed(ground: Ground) -> None:
    await ground.function("watched")
    async with watching(ground.acme.api, INVOCATIONS, function="watched") as stream:
        await stream.until_id()
        await ground.accept(IDLE)
        await ground.accept("watched", invocationID="seen")
        [event] = await stream.until(lambda event: event.data["invocationID"] == "seen")
        assert (event.name, event.data["state"]) == ("changed", "queued")
        last = stream.last_id
    await ground.acme.api.post(f"{INVOCATIONS}/seen/cancel")
    await ground.accept("watched", invocationID="missed")
    async with watching(ground.acme.api, INVOCATIONS, last, function="watched") as stream:
        events = await stream.until(lambda event: event.data["invocationID"] == "missed")
        assert [(each.data["invocationID"], each.data["state"]) for each in events] == [
            ("seen", "cancelled"),
            ("missed", "queued"),
        ]
        ids = [int(each.id or 0) for each in events]
        assert ids == sorted(ids)


async def test_large_bodies_come_and_go_whole(ground: Ground) -> None:
    text = "ä b " * 100_000
    answer = await ground.invoke(WORKED, mode="sync", payload={"text": text, "repeat": 2}, invocationID="large")

    assert answer.status_code == 200, answer.text[:500]
    view = answer.json()["data"]
    assert (view["state"], view["result"]["body"]) == ("succeeded", {"text": text * 2})
    assert view["resultBytes"] > 1_000_000
    assert (await ground.look("large"))["result"]["body"] == {"text": text * 2}
    again = (await ground.acme.api.post(f"{INVOCATIONS}/large/retry")).json()["data"]["invocationID"]
    assert (await ground.ends(again))["result"]["body"] == {"text": text * 2}
    [listed] = [call for call in await pages(ground, INVOCATIONS, state="succeeded") if call["invocationID"] == "large"]
    assert "body" not in listed["result"]


async def test_who_may_do_what(ground: Ground, kube: KubeClient) -> None:
    async with key_of(kube, ground.url, ground.acme.name, Role.INVOKER) as (invoker, _):
        body = {"serverlessRequestID": IDLE, "invocationID": "by-invoker"}
        assert (await invoker.post(INVOCATIONS, json=body)).status_code == 202
        assert (await invoker.get(f"{INVOCATIONS}/by-invoker")).status_code == 200
        assert (await invoker.post(f"{INVOCATIONS}/by-invoker/cancel")).status_code == 200
        assert (await invoker.delete(f"{SERVERLESS}/functions/{IDLE}/queue")).status_code == 403
        assert (await invoker.post(f"{DEAD_LETTERS}/redrive", json={})).status_code == 403
    async with key_of(kube, ground.url, ground.acme.name, Role.VIEWER) as (viewer, _):
        assert (await viewer.get(f"{INVOCATIONS}/by-invoker")).status_code == 200
        assert (await viewer.post(INVOCATIONS, json={"serverlessRequestID": IDLE})).status_code == 403
        assert (await viewer.post(f"{INVOCATIONS}/by-invoker/retry")).status_code == 403


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
