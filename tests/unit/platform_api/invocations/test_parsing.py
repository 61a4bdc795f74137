"""Calls as they are asked for and shown, without a queue."""

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu_platform.api_models.invocations import Invoke, Redrive
from gpu_platform.domain.invocations import (
    BodyReference,
    InvocationRequest,
    InvocationResult,
    Mode,
    accept,
    answer,
    begin,
    cancel,
)
from platform_api.http.bodies import decode_body
from platform_api.http.errors import ApiError
from platform_api.invocations.parsing import (
    LARGEST_FIELDS,
    SMALL,
    Payload,
    TextThreads,
    check_payload,
    check_result,
    read_asked,
)
from platform_api.invocations.reads import view_invocation
from tests.support import earlier_invocations

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
CALL = accept("acme", InvocationRequest(function="resize", id="call-1", payload=1), NOW)


def decode(**said: Any) -> Invoke:
    return decode_body(Invoke, json.dumps({"serverlessRequestID": "resize", **said}).encode())


def test_little_needs_to_be_said() -> None:
    request = decode().to_request()

    assert (request.function, request.mode, request.content_type) == ("resize", Mode.ASYNC, "application/json")
    assert (request.payload, request.timeout_seconds) == (None, None)
    assert request.id.startswith("inv-")
    assert len(request.id) == len("inv-") + 32
    assert decode().to_request().id != request.id


def test_a_timeout_of_zero_is_none() -> None:
    assert decode(timeoutSeconds=0).to_request().timeout_seconds is None
    assert decode(timeoutSeconds=7).to_request().timeout_seconds == 7


WRONG: dict[str, tuple[Any, ...]] = {
    "serverlessRequestID": (
        *("", "*", ">", "a.b", "a b", "A", "a_b", "a\n", "$KV", "x" * 31),
        *(None, 1, ["a"]),
    ),
    "invocationID": ("", "*", ">", "a.b", "a b", "ä", "a\r\nb", "$JS", "x" * 129, 1),
    "mode": ("", "both", "SYNC", 1, True),
    "timeoutSeconds": (-1, 259_201, "8", 1.5, True),
    "contentType": ("", "a\r\nb: c", " ", "x" * 129, 1),
    "headers": (
        {"": "a"},
        {"a b": "c"},
        {"a\r\nb": "c"},
        {"a": "b\r\nc: d"},
        {"a": "b\x00"},
        {"Nats-Msg-Id": "a"},
        {"nats-ttl": "1"},
        {"a": "x" * 4_097},
        {f"h{number}": "" for number in range(65)},
        {f"h{number}": "x" * 4_096 for number in range(8)},
        [],
    ),
    "attributes": (
        {"": "a"},
        {"a": "b\n"},
        {"a": "x" * 2_049},
        {f"a{number}": "ä" * 2_048 for number in range(8)},
        "a",
    ),
    "unknown": (1,),
    "replySubject": ("a",),
}
BAD = [(field, {field: value}) for field, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("field", "said"), BAD, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_named(field: str, said: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        decode(**said)

    assert refused.value.status == 400
    assert any(detail.field.startswith(field) for detail in refused.value.details)


def test_headers_and_attributes_share_their_room() -> None:
    half = {f"n{number}": "x" * 2_048 for number in range(8)}
    assert decode(headers=half).to_request().headers == half
    with pytest.raises(ApiError, match="together have more than 32768 bytes") as refused:
        decode(headers=half, attributes=half)

    assert [detail.field for detail in refused.value.details] == ["attributes"]


def with_payload(payload: bytes, **said: Any) -> bytes:
    fields = json.dumps({"invocationID": "call-1", **said}).encode()
    return b'{"serverlessRequestID": "resize", "payload": %b, %b' % (payload, fields[1:])


def read(body: bytes) -> tuple[InvocationRequest, Payload]:
    asked = read_asked(body)
    request = asked.fields.to_request()
    return request, check_payload(request, asked.take_payload())


@pytest.mark.parametrize(
    "payload",
    [
        *("1e999", "-1e999", "NaN", "Infinity", r'"\ud800"', "[" * 5_000 + "]" * 5_000, "", "1 2", "[1}", "[1,]"),
        *('{"a":1,"a":1}', "1, 2", '1}, {"a":1', '1, "payload": 2', "[" + "[]," * 100_000 + "1]"),
    ],
    ids=lambda payload: str(payload)[:20],
)
def test_a_payload_is_something_that_can_be_handed_on(payload: str) -> None:
    with pytest.raises(ApiError) as refused:
        read(with_payload(payload.encode()))

    assert refused.value.status == 400


@pytest.mark.parametrize("payload", [b"[" * 200 + b"]" * 200, b"[" + b"1," * 199_900 + b"1]"], ids=["deep", "many"])
def test_a_payload_may_go_up_to_the_bounds(payload: bytes) -> None:
    _, checked = read(with_payload(payload))

    assert checked.content == payload


def test_a_payload_stays_the_bytes_that_were_sent() -> None:
    sent = rb'{ "b" : 1.10, "a": "\u00e9" }'
    request, checked = read(with_payload(sent, headers={"A": "b"}))

    assert (request.payload, checked.content, request.headers) == (None, sent, {"A": "b"})
    assert checked.request_hash == request.model_copy(update={"payload": {"a": "é", "b": 1.1}}).hash
    for nothing in (with_payload(b"null"), b'{"serverlessRequestID": "resize"}'):
        request, checked = read(nothing)
        assert (checked.content, checked.request_hash) == (None, request.hash)


def test_a_payload_is_not_kept_once_it_was_taken() -> None:
    asked = read_asked(with_payload(b"[1]"))

    assert (asked.take_payload(), asked.payload) == (b"[1]", None)
    with pytest.raises(RuntimeError):
        asked.take_payload()


def test_large_data_belongs_into_the_payload() -> None:
    read(with_payload(b'"%b"' % (b"x" * LARGEST_FIELDS)))
    with pytest.raises(ApiError, match=f"more than {LARGEST_FIELDS} bytes besides its payload"):
        read_asked(b'{"serverlessRequestID": "%b"}' % (b"x" * LARGEST_FIELDS))


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (earlier_invocations.REQUEST, earlier_invocations.REQUEST_HASH),
        (earlier_invocations.LARGE_REQUEST, earlier_invocations.LARGE_HASH),
        (earlier_invocations.EMPTY_REQUEST, earlier_invocations.EMPTY_HASH),
    ],
    ids=["small", "large", "empty"],
)
def test_a_request_has_the_hash_that_an_earlier_version_stored(body: bytes, known: str) -> None:
    _, checked = read(body)

    assert checked.request_hash == known


async def test_a_large_text_is_looked_at_beside_the_event_loop() -> None:
    threads = TextThreads()

    assert await threads.run("acme", b" " * SMALL, threading.current_thread) is threading.current_thread()
    assert await threads.run("acme", b" " * (SMALL + 1), threading.current_thread) is not threading.current_thread()


async def test_a_tenant_has_one_thread_for_large_texts_and_others_do_not_wait_for_it() -> None:
    threads, text, release = TextThreads(), b" " * (SMALL + 1), threading.Event()
    try:
        first = asyncio.create_task(threads.run("acme", text, release.wait))
        order: list[str] = []
        second = asyncio.create_task(threads.run("acme", text, lambda: order.append("acme")))
        await threads.run("umbrella", text, lambda: order.append("umbrella"))
        assert order == ["umbrella"]
    finally:
        release.set()
    await asyncio.gather(first, second)
    assert order == ["umbrella", "acme"]


@pytest.mark.parametrize(
    "content", [b"not json", b"[1}", b'1},"x":{', b'1,"x":1', b'[],"x":' + b"[]," * 200_000 + b"1"]
)
def test_a_stored_result_that_is_not_one_value_is_not_shown(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_result(content)


def test_a_stored_result_may_have_more_values_than_a_payload() -> None:
    check_result(b"[" + b"0," * 300_000 + b"1]")


@pytest.mark.parametrize("said", [{"ids": []}, {"ids": ["*"]}, {"function": ">"}, {"limit": 0}, {"limit": 1_001}])
def test_dead_letters_are_named_by_plain_ids(said: dict[str, Any]) -> None:
    with pytest.raises(ApiError):
        decode_body(Redrive, json.dumps(said).encode())


def test_a_view_shows_the_result_with_its_body_only_where_it_was_read() -> None:
    over = answer(begin(CALL, "worker-1", NOW), InvocationResult(body=[1, None]), NOW)

    assert "body" not in view_invocation(over).to_json()["result"]
    assert view_invocation(over, over.result).to_json()["result"]["body"] == [1, None]
    large = answer(
        begin(CALL, "worker-1", NOW), InvocationResult(body=1), NOW, BodyReference(digest="0" * 64, size=9, chunks=1)
    )
    assert view_invocation(large, large.result).to_json()["resultBytes"] == 9


def test_a_view_names_what_the_caller_named() -> None:
    shown = view_invocation(cancel(begin(CALL, "worker-1", NOW + timedelta(seconds=1)), NOW)).to_json()

    assert shown == {
        "invocationID": "call-1",
        "serverlessRequestID": "resize",
        "mode": "async",
        "state": "running",
        "attempts": 1,
        "worker": "worker-1",
        "cancelAsked": True,
        "acceptedAt": "2026-11-16T12:00:00Z",
        "expiresAt": "2026-11-19T12:00:00Z",
        "startedAt": "2026-11-16T12:00:01Z",
    }
