"""The frame around every request, without a server: its id, its headers, its limits, and the last net."""

import asyncio
import json
import logging
import re
import secrets
from dataclasses import dataclass, field

import pytest

from gpu_platform.domain.json_text import Json
from platform_api.http.capacity import FREE_BYTES, HELD_BYTES, TENANT_SHARE, release_held
from platform_api.http.middleware import (
    PART_BYTES,
    Application,
    Frame,
    Message,
    Receive,
    Scope,
    Send,
    current_request_id,
)
from platform_api.metrics import ApiMetrics

Header = tuple[bytes, bytes]

BODY_LIMIT = 100
CLIENT_SECONDS = 10


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def error(self) -> Json:
        error: Json = json.loads(self.body)["error"]
        return error

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")


async def read_all(_: Scope, receive: Receive, send: Send) -> None:
    """Answers with the number of bytes that came, and the id of the request."""
    count, is_more = 0, True
    while is_more:
        message = await receive()
        count, is_more = count + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"kept")]})
    await send({"type": "http.response.body", "body": f"{count} {current_request_id.get()}".encode()})


async def break_early(*_: object) -> None:
    raise RuntimeError("a secret of the inside")


async def break_late(_: Scope, __: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise RuntimeError("a secret of the inside")


def frame(
    application: Application = read_all,
    in_flight: int = 10,
    metrics: ApiMetrics | None = None,
    client_seconds: float = CLIENT_SECONDS,
    body_limit: int = BODY_LIMIT,
    passed_on: re.Pattern[str] | None = None,
) -> Frame:
    return Frame(
        application,
        body_limit=body_limit,
        in_flight_limit=in_flight,
        client_seconds=client_seconds,
        tenant_of=find_tenant,
        metrics=metrics or ApiMetrics(),
        passed_on=passed_on,
    )


def scope_of(*headers: Header) -> Scope:
    return {"type": "http", "method": "POST", "path": "/x", "headers": list(headers), "client": None, "state": {}}


def key_of(tenant: str) -> Header:
    return b"authorization", f"Bearer {tenant}".encode()


def find_tenant(authorization: str) -> str | None:
    return authorization.partition("Bearer ")[2] or None


async def ask(framed: Application, *chunks: bytes, headers: tuple[Header, ...] = (), path: str = "/x") -> Answer:
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return messages.pop(0)

    answer = Answer()
    scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers), "client": ("127.0.0.1", 1)}
    await framed(scope, receive, answer.send)
    return answer


async def test_every_answer_carries_an_id_and_the_headers_of_the_house() -> None:
    answer = await ask(frame())
    assert answer.status == 200
    assert answer.headers["x-own"] == "kept"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.body.decode() == f"0 {answer.headers['x-request-id']}"


async def test_an_answer_that_says_otherwise_of_itself_is_left_alone_but_for_the_id() -> None:
    async def speak(_: Scope, __: Receive, send: Send) -> None:
        said = [(b"Cache-Control", b"max-age=60"), (b"x-frame-options", b"SAMEORIGIN")]
        await send({"type": "http.response.start", "status": 200, "headers": said})
        await send({"type": "http.response.body", "body": b""})

    answer = await ask(frame(speak))
    assert (answer.headers["Cache-Control"], answer.headers["x-frame-options"]) == ("max-age=60", "SAMEORIGIN")
    assert "cache-control" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"]


async def test_a_callers_id_is_taken_over() -> None:
    answer = await ask(frame(), headers=((b"x-request-id", b"Build-7.a_b"),))
    assert answer.headers["x-request-id"] == "Build-7.a_b"


@pytest.mark.parametrize("given", [b"", b"a b", b"a\r\nset-cookie: x", b"x" * 65, "é".encode(), b'"', b"a\x00"])
async def test_an_id_that_could_break_a_log_or_a_header_is_replaced(given: bytes) -> None:
    answer = await ask(frame(), headers=((b"x-request-id", given),))
    assert answer.headers["x-request-id"] != given.decode()
    assert len(answer.headers["x-request-id"]) == 16


async def test_two_requests_have_two_ids() -> None:
    framed = frame()
    assert (await ask(framed)).headers["x-request-id"] != (await ask(framed)).headers["x-request-id"]


async def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    answer = await ask(frame(break_early), headers=((b"content-length", b"101"),))
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")
    assert answer.error["requestID"] == answer.headers["x-request-id"]


async def test_a_body_of_the_limit_passes() -> None:
    answer = await ask(frame(), b"x" * BODY_LIMIT, headers=((b"content-length", b"100"),))
    assert answer.body.startswith(b"100 ")


@pytest.mark.parametrize("chunks", [(b"x" * 101,), (b"x" * 60, b"x" * 60), (b"x",) * 101])
async def test_a_body_is_counted_where_nobody_says_how_long_it_is(chunks: tuple[bytes, ...]) -> None:
    answer = await ask(frame(), *chunks)
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")


async def test_more_requests_than_may_be_under_way_are_sent_away_and_probes_are_not() -> None:
    go_on, waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/x":
            waiting.release()
            await go_on.wait()
        await read_all(scope, receive, send)

    framed = frame(wait, in_flight=2)
    first = [asyncio.create_task(ask(framed, headers=(key_of(name),))) for name in ("one", "two")]
    for _ in first:
        await waiting.acquire()
    refused = await ask(framed, headers=(key_of("three"),))
    assert (refused.status, refused.error["code"]) == (503, "service_unavailable")
    assert refused.headers["retry-after"] == "1"
    go_on.set()
    assert [answer.status for answer in await asyncio.gather(*first)] == [200, 200]
    assert (await ask(framed, headers=(key_of("three"),))).status == 200


async def test_one_tenant_and_callers_without_a_key_leave_slots_to_others() -> None:
    go_on, waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/x":
            waiting.release()
            await go_on.wait()
        await read_all(scope, receive, send)

    framed = frame(wait, in_flight=8)
    greedy, others = (key_of("greedy"),), (key_of("modest"),)
    held = [asyncio.create_task(ask(framed, headers=greedy)) for _ in range(2)]
    held.append(asyncio.create_task(ask(framed)))
    for _ in held:
        await waiting.acquire()
    refused = await ask(framed, headers=greedy)
    assert (refused.status, refused.error["code"]) == (429, "too_many_requests")
    assert (await ask(framed)).status == 503
    assert (await ask(framed, headers=others, path="/y")).status == 200
    go_on.set()
    assert [answer.status for answer in await asyncio.gather(*held)] == [200] * 3
    assert (await ask(framed, headers=greedy)).status == (await ask(framed)).status == 200


async def test_a_body_that_does_not_arrive_is_refused_and_frees_its_slot() -> None:
    framed = frame(in_flight=4, client_seconds=0.05)
    scope = scope_of(key_of("slow"), (b"content-length", b"10"))
    parts = [{"type": "http.request", "body": b"x", "more_body": True}]

    async def receive() -> Message:
        return parts.pop() if parts else await asyncio.Future()

    answer = Answer()
    await framed(scope, receive, answer.send)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert "1 bytes" in answer.error["message"]
    assert (await ask(framed, headers=(key_of("slow"),))).status == 200


async def test_a_large_answer_is_written_in_parts_and_ends_after_them() -> None:
    content = secrets.token_bytes(2 * PART_BYTES + 1)

    async def answer_all(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": content})

    sent: list[tuple[int, bool]] = []
    answer = Answer()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            sent.append((len(message["body"]), message.get("more_body", False)))
        await answer.send(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    await frame(answer_all)(scope_of(), receive, send)
    assert answer.body == content
    assert sent == [(PART_BYTES, True), (PART_BYTES, True), (1, True), (0, False)]


@pytest.mark.parametrize("is_announced", [True, False], ids=["announced", "counted"])
async def test_bodies_that_a_tenant_parks_are_bounded_and_small_ones_pass(is_announced: bool) -> None:
    go_on, waiting = asyncio.Event(), asyncio.Semaphore(0)
    large = HELD_BYTES // TENANT_SHARE // 2

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"] == "/x":
            waiting.release()
            await go_on.wait()
        await read_all(scope, receive, send)

    framed = frame(wait, in_flight=100, body_limit=2 * large, passed_on=re.compile("/on/"))

    async def post(tenant: str, size: int, path: str = "/x") -> Answer:
        headers = (key_of(tenant), *([(b"content-length", str(size).encode())] if is_announced else []))
        return await ask(framed, bytes(size), headers=headers, path=path)

    parked = [asyncio.create_task(post("greedy", large)) for _ in range(2)]
    for _ in parked:
        await waiting.acquire()
    refused = await post("greedy", large, "/y")
    assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (429, "too_many_requests", "1")
    assert (await post("greedy", FREE_BYTES, "/y")).status == 200
    assert (await post("greedy", large, "/on/y")).status == 200
    assert (await post("modest", large, "/y")).status == 200
    go_on.set()
    assert [answer.status for answer in await asyncio.gather(*parked)] == [200, 200]
    assert (await post("greedy", large, "/y")).status == 200


async def test_a_body_that_was_dropped_counts_no_longer() -> None:
    large = HELD_BYTES // TENANT_SHARE
    go_on, waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def drop(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        release_held()
        waiting.release()
        await go_on.wait()
        await read_all(_, receive, send)

    framed = frame(drop, body_limit=large, in_flight=100)
    asking = [asyncio.create_task(ask(framed, bytes(large), headers=(key_of("one"),))) for _ in range(3)]
    for _ in asking:
        await waiting.acquire()
    go_on.set()
    assert [answer.status for answer in await asyncio.gather(*asking)] == [200] * 3


async def test_a_caller_who_leaves_before_the_end_of_the_body_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with caplog.at_level(logging.ERROR):
        await frame()(scope_of((b"content-length", b"10")), receive, (answer := Answer()).send)
    assert (answer.status, caplog.records) == (499, [])


async def test_an_unexpected_error_is_a_500_that_says_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await ask(frame(break_early), headers=((b"x-request-id", b"look-me-up"),))
    assert answer.status == 500
    assert answer.error == {
        "code": "internal_error",
        "message": "something broke here; the log knows more",
        "requestID": "look-me-up",
    }
    assert "secret" not in answer.body.decode()
    [record] = [record for record in caplog.records if record.message == "request.failed"]
    assert vars(record)["requestID"] == "look-me-up"
    assert record.exc_info is not None


async def test_an_error_in_the_middle_of_an_answer_begins_no_second_one() -> None:
    answer = await ask(frame(break_late))
    assert (answer.status, answer.body) == (200, b"")


async def test_a_request_that_failed_is_no_longer_under_way() -> None:
    framed = frame(break_early, in_flight=1)
    assert [(await ask(framed)).status for _ in range(3)] == [500, 500, 500]


async def test_answers_are_counted_by_route_and_never_by_a_callers_words() -> None:
    metrics = ApiMetrics()
    await ask(frame(metrics=metrics), path="/words/of/a/caller")
    text = metrics.render().decode()
    assert 'gpu_platform_api_requests_total{method="POST",route="unknown",status="200"} 1.0' in text
    assert "words" not in text


@pytest.mark.parametrize(
    ("method", "path", "size", "status"),
    [
        ("POST", "/large", BODY_LIMIT + 1, 200),
        ("POST", "/large", 10 * BODY_LIMIT, 200),
        ("POST", "/large", 10 * BODY_LIMIT + 1, 413),
        ("PUT", "/large", BODY_LIMIT + 1, 413),
        ("POST", "/large/", BODY_LIMIT + 1, 413),
        ("POST", "/other", BODY_LIMIT + 1, 413),
    ],
)
async def test_one_route_takes_larger_bodies_and_no_other_one_does(
    method: str, path: str, size: int, status: int
) -> None:
    framed = Frame(
        read_all,
        body_limit=BODY_LIMIT,
        larger_limits={("POST", "/large"): 10 * BODY_LIMIT},
        in_flight_limit=10,
        client_seconds=CLIENT_SECONDS,
        tenant_of=find_tenant,
        metrics=ApiMetrics(),
    )
    answer = Answer()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * size, "more_body": False}

    scope: Scope = {"type": "http", "method": method, "path": path, "headers": [], "client": None}
    await framed(scope, receive, answer.send)

    assert answer.status == status


@pytest.mark.parametrize(("path", "status"), [("/on/a", 200), ("/on/", 200), ("/on", 413), ("/x/on/a", 413)])
async def test_a_body_that_is_passed_on_has_no_limit(path: str, status: int) -> None:
    framed = Frame(
        read_all,
        body_limit=BODY_LIMIT,
        in_flight_limit=10,
        client_seconds=CLIENT_SECONDS,
        tenant_of=find_tenant,
        metrics=ApiMetrics(),
        passed_on=re.compile(r"/on/"),
    )
    parts = [b"x" * BODY_LIMIT] * 5
    announced = (b"content-length", str(sum(map(len, parts))).encode())
    assert (await ask(framed, *parts, headers=(announced,), path=path)).status == status
