"""What the API makes of records and bodies on a real nats-server, without a cluster: functions are given by name."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gpu_platform.api_models.invocations import Redrive
from gpu_platform.clock import now_utc
from gpu_platform.domain.invocations import (
    BodyReference,
    Invocation,
    InvocationRequest,
    InvocationResult,
    InvocationState,
    accept,
    answer,
    begin,
    bury,
    retry_id,
)
from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.nats.connection import JetStream, QueueAccess, open_queue
from gpu_platform.nats.listing import Listing
from gpu_platform.nats.streams import ensure_streams
from gpu_platform.nats.subjects import RECORDS, record_subject
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError, object_not_found
from platform_api.invocations.acceptance import CallAcceptance
from platform_api.invocations.limits import FILL_SECONDS, GOOD_SECONDS, ONE_RECORD, QueueCounts, RecordRoom, TenantRoom
from platform_api.invocations.parsing import TextThreads
from platform_api.invocations.reads import Store, open_store, show
from platform_api.invocations.service import CallChanges
from platform_api.nats_connection import QueueLink
from tests.support.nats_server import queue_server

CALLER = Caller("acme", frozenset(), "none")
LOST = BodyReference(digest=hashlib.sha256(b"lost").hexdigest(), size=4, chunks=1)


class Acceptance(CallAcceptance):
    """Every function is there and has room, but one."""

    def __init__(self) -> None:
        link = QueueLink(None, "test")
        threads, limits = TextThreads(), TenantLimits()
        super().__init__(cast(Cluster, None), link, QueueCounts(link), threads, lambda _: limits, now_utc)

    @asynccontextmanager
    async def room(self, store: Store, caller: Caller, function_name: str) -> AsyncIterator[None]:  # noqa: ARG002
        if function_name == "gone":
            raise object_not_found("function", function_name)
        yield


@pytest.fixture
async def js(tmp_path: Path) -> AsyncIterator[JetStream]:
    async with queue_server(tmp_path) as server, open_queue(QueueAccess(server.url), "test") as context:
        await ensure_streams(context)
        yield context


@pytest.fixture
def store(js: JetStream) -> Store:
    return open_store(js, timedelta(hours=1))


async def test_a_call_on_its_way_counts_until_nats_has_it(js: JetStream) -> None:
    """Also when NATS is asked anew meanwhile, which knows nothing of it yet."""
    now = 0.0
    counts = QueueCounts(cast(QueueLink, SimpleNamespace(js=js)), lambda: now)
    async with counts.room("acme", "words", limit=1):
        now += 2 * GOOD_SECONDS
        with pytest.raises(ApiError) as refused:
            async with counts.room("acme", "words", limit=1):
                pass
    assert refused.value.status == 429
    now += 2 * GOOD_SECONDS
    async with counts.room("acme", "words", limit=1):
        pass


@pytest.fixture
def changes() -> CallChanges:
    return CallChanges(Acceptance(), now_utc)


def call(invocation_id: str, function: str = "resize", payload_body: BodyReference | None = None) -> Invocation:
    request = InvocationRequest(function=function, id=invocation_id, payload={"width": 3})
    return accept("acme", request, now_utc(), payload_body=payload_body)


async def bury_one(store: Store, one: Invocation) -> Invocation:
    seen = (await store.records.accept(one)).seen
    return (await store.records.change(seen, bury(seen.call, "AttemptsExhausted", now_utc()))).call


async def test_dead_letters_that_cannot_be_tried_again_hold_up_no_other(
    store: Store, changes: CallChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_platform.nats.bodies.MISSING_SECONDS", 0.2)
    await bury_one(store, call("of-no-function", "gone"))
    await bury_one(store, call("without-payload", payload_body=LOST))
    await bury_one(store, call("fine"))
    done = await changes.redrive(store, CALLER, Redrive())

    assert (done.redriven, done.skipped, done.ids) == (1, 2, (retry_id("acme", "fine"),))
    again = await store.records.find("acme", retry_id("acme", "fine"))
    assert again is not None
    assert (again.call.payload, again.call.retry_of) == ({"width": 3}, "fine")


async def test_a_call_that_has_the_id_of_a_retry_is_not_taken_for_it(store: Store, changes: CallChanges) -> None:
    await store.records.accept(call(retry_id("acme", "one")))
    await bury_one(store, call("one"))
    with pytest.raises(ApiError, match="was given to another call") as refused:
        await changes.retry(store, CALLER, "one")

    assert refused.value.status == 409


async def test_what_is_purged_keeps_its_payload(store: Store, changes: CallChanges) -> None:
    await store.records.accept(call("one"))
    assert await changes.purge(store, CALLER, "resize") == 1

    seen = await store.records.find("acme", "one")
    assert seen is not None
    assert (seen.call.state, seen.call.payload) == (InvocationState.CANCELLED, {"width": 3})


async def test_a_result_whose_body_is_gone_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_platform.nats.bodies.MISSING_SECONDS", 0.2)
    running = begin(call("one"), "worker-1", now_utc())
    ended = answer(running, InvocationResult(), now_utc(), LOST)
    view = (await show(store, ended, TextThreads(), 1 << 20)).view

    assert view.result is not None
    assert "the body of the result cannot be read" in (view.result.error or "")


async def test_what_is_no_record_is_left_out_of_lists_and_found_by_nobody(js: JetStream, store: Store) -> None:
    await js.publish(record_subject("acme", "strange", "resize"), b"{}")
    await store.records.accept(call("one"))

    seen, next_sequence = await store.list_page(CALLER, sequence=0, limit=10)
    assert ([one.call.id for one in seen], next_sequence) == (["one"], None)
    with pytest.raises(ApiError) as refused:
        await store.get(CALLER, "strange")
    assert refused.value.status == 404


async def test_a_payload_that_nobody_could_read_is_the_callers_mistake(store: Store) -> None:
    deep = call("deep").model_copy(update={"payload": json.loads("[" * 250 + "]" * 250)})
    with pytest.raises(ApiError) as refused:
        await Acceptance().write(store, deep)

    assert (refused.value.status, [detail.field for detail in refused.value.details]) == (400, ["payload"])


async def test_inline_payloads_of_one_tenant_leave_room_for_the_records_of_others(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records have no limit in bytes: where they fill the stream, the tenant that has many waits."""
    monkeypatch.setattr("platform_api.invocations.limits.SCARCE_RECORDS", 3)
    await js.update_stream((await js.stream_info(RECORDS)).config.evolve(max_bytes=100_000))
    listing, records, tenants = Listing(js), RecordRoom(), TenantRoom(lambda _: TenantLimits())
    for number in range(4):
        await js.publish(record_subject("greedy", f"large-{number}", "resize"), b"x" * 20_000)
    await records.check(listing)

    assert records.is_scarce
    with pytest.raises(ApiError, match="room for records is scarce") as refused:
        async with tenants.hold(listing, "greedy", ONE_RECORD, is_scarce=records.is_scarce):
            pass
    assert (refused.value.status, refused.value.code) == (429, "too_many_invocations")
    async with tenants.hold(listing, "acme", ONE_RECORD, is_scarce=records.is_scarce):
        pass


async def test_new_calls_leave_room_for_the_ends_of_others(js: JetStream) -> None:
    config = (await js.stream_info(RECORDS)).config
    await js.update_stream(config.evolve(max_bytes=100_000))
    now = 0.0
    room = RecordRoom(lambda: now)
    await room.check(Listing(js))
    await js.publish(record_subject("acme", "large", "resize"), b"x" * 95_000)
    await room.check(Listing(js))
    now += FILL_SECONDS + 1
    with pytest.raises(ApiError, match="no room for more calls") as refused:
        await room.check(Listing(js))

    assert (refused.value.status, "Retry-After" in refused.value.headers) == (503, True)
