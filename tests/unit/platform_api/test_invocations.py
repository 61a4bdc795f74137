"""Calls as they are asked for and shown, without a queue."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

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
from platform_api.http.decoding import decode_body
from platform_api.http.errors import ApiError
from platform_api.invocations.schemas import Invoke, Redrive, view_of

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


@pytest.mark.parametrize("payload", ["1e999", "-1e999", "NaN", "Infinity", '"\\ud800"', "[" * 5_000 + "]" * 5_000])
def test_a_payload_is_something_that_can_be_handed_on(payload: str) -> None:
    with pytest.raises(ApiError) as refused:
        decode_body(Invoke, f'{{"serverlessRequestID": "resize", "payload": {payload}}}'.encode())

    assert refused.value.status == 400


@pytest.mark.parametrize("said", [{"ids": []}, {"ids": ["*"]}, {"function": ">"}, {"limit": 0}, {"limit": 1_001}])
def test_dead_letters_are_named_by_plain_ids(said: dict[str, Any]) -> None:
    with pytest.raises(ApiError):
        decode_body(Redrive, json.dumps(said).encode())


def test_a_view_shows_the_result_with_its_body_only_where_it_was_read() -> None:
    over = answer(begin(CALL, "worker-1", NOW), InvocationResult(body=[1, None]), NOW)

    assert "body" not in view_of(over).to_json()["result"]
    assert view_of(over, over.result).to_json()["result"]["body"] == [1, None]
    large = answer(
        begin(CALL, "worker-1", NOW), InvocationResult(body=1), NOW, BodyReference(digest="0" * 64, size=9, chunks=1)
    )
    assert view_of(large, large.result).to_json()["resultBytes"] == 9


def test_a_view_names_what_the_caller_named() -> None:
    shown = view_of(cancel(begin(CALL, "worker-1", NOW + timedelta(seconds=1)), NOW)).to_json()

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
