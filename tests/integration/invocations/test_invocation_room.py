"""The room in JetStream: each tenant has a share of it, and what no invocation needs is deleted at once."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from gpu_platform.kube import KubeClient
from gpu_platform.nats.subjects import BODIES, BODY_PREFIX, CHUNK_BYTES, QUEUE, QUEUE_PREFIX
from tests.support.api import code_of
from tests.support.clusters import RunningCluster
from tests.support.invocations import INVOCATIONS, ROLES, SERVERLESS, Ground, open_ground
from tests.support.tenants import tenant
from tests.support.waiting import NotYet, eventually

FUNCTION = "words"
RECORDS_LIMIT, BYTES_LIMIT = 5, 32 << 20
LARGE = "x" * (15 << 20)


@pytest.fixture(scope="module")
async def shared(
    kube: KubeClient, cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    limits = {"invocationRecords": RECORDS_LIMIT, "invocationBytes": BYTES_LIMIT}
    settings = {"GPU_PLATFORM_API_TENANT_LIMITS": json.dumps(limits)}
    async with open_ground(kube, cluster, tmp_path_factory.mktemp("room"), settings) as made:
        yield made


@pytest.fixture
async def ground(shared: Ground, kube: KubeClient) -> AsyncIterator[Ground]:
    async with new_tenant(shared, kube) as made:
        yield made


@asynccontextmanager
async def new_tenant(shared: Ground, kube: KubeClient) -> AsyncIterator[Ground]:
    """One that has stored nothing yet."""
    async with tenant(kube, shared.url, *ROLES) as acme:
        ground = replace(shared, acme=acme)
        await ground.function(FUNCTION)
        yield ground


async def count_messages(ground: Ground, stream: str, prefix: str) -> int:
    info = await ground.js.stream_info(stream, subjects_filter=f"{prefix}.{ground.acme.name}.>")
    return sum((info.state.subjects or {}).values())


async def count_chunks(ground: Ground) -> int:
    return await count_messages(ground, BODIES, BODY_PREFIX)


async def cancel(ground: Ground, invocation_id: str) -> None:
    answer = await ground.acme.api.post(f"{INVOCATIONS}/{invocation_id}/cancel")
    assert (answer.status_code, answer.json()["data"]["state"]) == (200, "cancelled"), answer.text


async def delete(ground: Ground, invocation_id: str) -> httpx.Response:
    return await ground.acme.api.delete(f"{INVOCATIONS}/{invocation_id}")


async def wait_accepted(ground: Ground, invocation_id: str) -> None:
    async def is_accepted() -> bool | NotYet:
        answer = await ground.invoke(FUNCTION, invocationID=invocation_id)
        return answer.status_code in (200, 202) or NotYet(answer.text)

    await eventually(is_accepted, every=0.3)


async def test_large_payloads_fill_a_tenants_share_and_not_the_stream(ground: Ground, kube: KubeClient) -> None:
    kept = [await ground.accept(FUNCTION, payload=LARGE) for _ in range(2)]
    before = await count_chunks(ground)
    refused = await ground.invoke(FUNCTION, invocationID="third", payload=LARGE)

    assert (refused.status_code, code_of(refused)) == (429, "too_many_invocation_bytes")
    assert int(refused.headers["Retry-After"]) >= 1
    message = refused.json()["error"]["message"]
    assert f"invocationBytes is {BYTES_LIMIT}" in message
    used = re.search(r"take (\d+) bytes", message)
    assert used is not None
    assert 2 * len(LARGE) <= int(used[1]) <= before * CHUNK_BYTES
    assert "delete invocations" in message
    assert await count_chunks(ground) == before
    assert (await ground.acme.api.get(f"{INVOCATIONS}/third")).status_code == 404

    # What was accepted is still answered, small payloads are taken, and another tenant has all of its own room.
    again = await ground.invoke(FUNCTION, invocationID=kept[0], payload=LARGE)
    assert again.status_code == 200, again.text
    await ground.accept(FUNCTION)
    async with new_tenant(ground, kube) as other:
        await other.accept(FUNCTION, payload=LARGE)


async def test_a_cancelled_invocation_leaves_no_payload_and_no_message(ground: Ground) -> None:
    """Twelve payloads of 15 MiB stayed for 97 hours. Here is room for two."""
    for _ in range(2):
        made = [await ground.accept(FUNCTION, payload=LARGE) for _ in range(2)]
        for each in made:
            await cancel(ground, each)

        assert await count_chunks(ground) == 0
        assert await count_messages(ground, QUEUE, QUEUE_PREFIX) == 0

    retried = await ground.acme.api.post(f"{INVOCATIONS}/{made[0]}/retry")
    assert retried.status_code == 409, retried.text
    assert "make a new call" in retried.json()["error"]["message"]


async def test_a_purged_queue_leaves_no_payloads(ground: Ground) -> None:
    for _ in range(3):
        await ground.accept(FUNCTION, payload="x" * (1 << 20))
    purged = await ground.acme.api.delete(f"{SERVERLESS}/functions/{FUNCTION}/queue")

    assert purged.json()["data"] == {"cancelled": 3}
    assert await count_chunks(ground) == 0
    assert await count_messages(ground, QUEUE, QUEUE_PREFIX) == 0


async def test_a_deleted_invocation_leaves_neither_record_nor_bodies(ground: Ground) -> None:
    waiting, *done = [await ground.accept(FUNCTION, payload={"text": "a " * (1 << 20)}) for _ in range(2)]
    refused = await delete(ground, waiting)
    assert (refused.status_code, code_of(refused)) == (409, "operation_conflict")
    assert "cancel it first" in refused.json()["error"]["message"]

    async with ground.workers(FUNCTION).worker():
        for each in (waiting, *done):
            assert (await ground.ends(each))["state"] == "succeeded"
    for each in (waiting, *done):
        assert (await delete(ground, each)).status_code == 200
        assert (await ground.acme.api.get(f"{INVOCATIONS}/{each}")).status_code == 404
        assert (await delete(ground, each)).status_code == 404
    assert await count_chunks(ground) == 0
    assert (await ground.acme.api.get(INVOCATIONS)).json()["data"] == []
    # The id is free again.
    await wait_accepted(ground, waiting)


async def test_records_are_limited_and_deleting_one_makes_room(ground: Ground) -> None:
    made = [await ground.accept(FUNCTION, invocationID=f"kept-{number}") for number in range(RECORDS_LIMIT)]
    for each in made:
        # The attack: the queue stays short, and the records stay.
        await cancel(ground, each)
    refused = await ground.invoke(FUNCTION, invocationID="more")

    assert (refused.status_code, code_of(refused)) == (429, "too_many_invocations")
    message = refused.json()["error"]["message"]
    assert f"has {RECORDS_LIMIT} invocations" in message
    assert f"invocationRecords is {RECORDS_LIMIT}" in message
    assert (await ground.invoke(FUNCTION, invocationID=made[0])).status_code == 200
    assert (await ground.acme.api.get(f"{INVOCATIONS}/more")).status_code == 404

    assert (await delete(ground, made[0])).status_code == 200
    await wait_accepted(ground, "more")


async def test_a_crowd_does_not_exceed_the_limits_of_one_process(ground: Ground) -> None:
    answers = await asyncio.gather(*(ground.invoke(FUNCTION) for _ in range(30)))

    assert sorted(answer.status_code for answer in answers) == [202] * RECORDS_LIMIT + [429] * (30 - RECORDS_LIMIT)
