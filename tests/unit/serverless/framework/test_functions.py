"""What users write, and how it is called: over a real Unix socket."""

import asyncio
import json
import math
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from serverless import Context, handler
from serverless.framework.calls import Answer, BadCallError, Call, parse_call
from serverless.framework.functions import LoadError, load_function
from serverless.framework.server import served
from tests.unit.serverless.framework.function_client import Client, serving


def test_a_plain_function_gets_the_payload_and_its_result_is_the_body(path: Path) -> None:
    double = handler(lambda payload: payload * 2)

    assert double(4) == 8, "still what it was"
    with serving(double, path) as client:
        assert client.invoke(4)["body"] == 8
        assert client.ask("GET", "/healthz") == (200, {"ok": True})


def test_an_async_function_gets_the_context_when_it_wants_it(path: Path) -> None:
    @handler(concurrency=3)
    async def tell(_: Any, context: Context) -> list[Any]:
        await asyncio.sleep(0)
        return [context.invocation_id, context.attempt]

    with serving(tell, path) as client:
        assert client.invoke(None, "call-7")["body"] == ["call-7", 1]


def test_an_answer_says_more_than_a_body(path: Path) -> None:
    created = handler(lambda _: Answer({"id": 1}, status_code=201, headers={"x": "y"}))

    with serving(created, path) as client:
        answer = client.invoke(None)
    assert (answer["statusCode"], answer["headers"], answer["body"]) == (201, {"x": "y"}, {"id": 1})


def test_an_answer_comes_in_one_piece(path: Path) -> None:
    with served(handler(lambda payload: payload), path), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        for _ in range(20):
            content = json.dumps(Call("call-1", "f", payload="whole").to_json()).encode()
            head = f"POST /invoke HTTP/1.1\r\nHost: framework\r\nContent-Length: {len(content)}\r\n\r\n"
            connection.sendall(head.encode() + content)
            assert b"whole" in connection.recv(1 << 16)


def test_an_error_of_the_function_is_an_answer_and_the_next_call_is_served(path: Path) -> None:
    inverse = handler(lambda payload: 1 / payload)

    with serving(inverse, path) as client:
        failed = client.invoke(0)
        assert (failed["statusCode"], failed["error"]) == (500, "ZeroDivisionError: division by zero")
        assert client.invoke(4)["body"] == 0.25


def nested(levels: int) -> Any:
    innermost: Any = 1
    return reduce(lambda inner, _: [inner], range(levels), innermost)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({(1, 2): 3}, "keys must be str"),
        (nested(101), "deeper than"),
        (nested(100_000), "deeper than"),
        (math.nan, "not JSON compliant"),
        (["\ud800"], "surrogates not allowed"),
    ],
)
def test_what_is_no_json_is_an_answer_that_says_so(path: Path, result: Any, words: str) -> None:
    with serving(handler(lambda payload: payload or result), path) as client:
        failed = client.invoke(None)
        assert (failed["statusCode"], failed["body"]) == (500, None)
        assert "what the function returned is no JSON" in failed["error"]
        assert words in failed["error"]
        assert client.invoke("next")["body"] == "next"


def test_what_json_does_not_know_is_written_as_its_text_and_a_dataclass_as_its_fields(path: Path) -> None:
    @dataclass
    class Size:
        width: int
        unit: Any

    with serving(handler(lambda _: [Size(1, Path("a")), nested(99)]), path) as client:
        assert client.invoke(None)["body"] == [{"width": 1, "unit": "a"}, nested(99)]


def test_an_error_that_is_no_text_is_told_all_the_same(path: Path) -> None:
    @handler
    def fail(_: Any) -> None:
        raise ValueError("\ud800")

    with serving(fail, path) as client:
        assert client.invoke(None)["error"] == "ValueError: \\ud800"


class Occupied:
    """A function with one slot, and a call in it that does not look at whether it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.ran: list[str] = []

    def handle(self, payload: str) -> None:
        self.ran.append(payload)
        self.begun.set()
        assert self.may_end.wait(10)


def test_a_call_that_waits_for_its_turn_can_be_cancelled_and_expires(path: Path) -> None:
    occupied = Occupied()
    answers: dict[str, Any] = {}

    def invoke(client: Client, name: str, deadline: datetime | None) -> None:
        call = Call(name, "f", deadline=deadline, payload=name)
        answers[name] = client.ask("POST", "/invoke", call.to_json())[1]

    with serving(handler(occupied.handle), path) as client:
        soon = datetime.now(UTC) + timedelta(seconds=0.2)
        calls = {"first": None, "cancelled": None, "late": soon}
        threads = {name: threading.Thread(target=invoke, args=(client, name, calls[name])) for name in calls}
        threads["first"].start()
        assert occupied.begun.wait(10)
        for name in ("cancelled", "late"):
            threads[name].start()
        while client.ask("POST", "/cancel", {"invocationID": "cancelled"}) != (200, {"found": True}):
            time.sleep(0.01)
        for name in ("cancelled", "late"):
            threads[name].join(10)
        occupied.may_end.set()
        threads["first"].join(10)

    assert occupied.ran == ["first"]
    assert (answers["cancelled"]["statusCode"], answers["cancelled"]["error"]) == (499, "cancelled")
    assert (answers["late"]["statusCode"], answers["late"]["error"]) == (499, "its deadline has passed")
    assert answers["first"]["statusCode"] == 200


def test_it_is_not_ready_while_calls_that_nobody_waits_for_hold_every_slot(path: Path) -> None:
    occupied = Occupied()
    with serving(handler(occupied.handle), path) as client:
        calling = threading.Thread(target=client.invoke, args=("lost",))
        calling.start()
        assert occupied.begun.wait(10)
        assert client.ask("GET", "/healthz")[0] == 200
        assert client.ask("POST", "/cancel", {"invocationID": "call-1"}) == (200, {"found": True})
        assert client.ask("GET", "/healthz")[0] == 503
        occupied.may_end.set()
        calling.join(10)
        assert client.ask("GET", "/healthz")[0] == 200


def test_no_more_calls_at_once_than_the_function_takes(path: Path) -> None:
    lock, running, most = threading.Lock(), 0, 0

    @handler(concurrency=2)
    def slow(_: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.1)
        with lock:
            running -= 1

    with serving(slow, path) as client:
        threads = [threading.Thread(target=client.invoke, args=(None, f"call-{number}")) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert most == 2


def test_it_is_not_ready_before_its_start_is_done(path: Path) -> None:
    loaded: list[str] = []
    may_load = threading.Event()
    function = handler(lambda _: loaded)

    @function.on_start
    def load() -> None:
        assert may_load.wait(10)
        loaded.append("model")

    answers: list[int] = []

    def look() -> None:
        while not path.exists():
            time.sleep(0.01)
        answers.append(Client(path).ask("GET", "/healthz")[0])
        may_load.set()

    looking = threading.Thread(target=look)
    looking.start()
    with serving(function, path) as client:
        looking.join(10)
        assert answers == [503]
        assert client.invoke(None)["body"] == ["model"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancelled_call_ends(path: Path, is_async: bool) -> None:
    begun = threading.Event()

    @handler
    def wait(_: Any, context: Context) -> str:
        begun.set()
        return "ended" if context.cancelled.wait(10) else "waited"

    @handler
    async def sleep(_: Any) -> None:
        begun.set()
        await asyncio.sleep(10)

    with serving(sleep if is_async else wait, path) as client:
        answers: list[Any] = []
        calling = threading.Thread(target=lambda: answers.append(client.invoke(None)))
        calling.start()
        assert begun.wait(10)
        # It has begun a moment before it is known to run.
        while client.ask("POST", "/cancel", {"invocationID": "call-1"}) != (200, {"found": True}):
            time.sleep(0.01)
        calling.join(10)
        assert client.ask("POST", "/cancel", {"invocationID": "call-1"}) == (200, {"found": False})
    [answer] = answers
    assert answer["error"] == "cancelled" if is_async else answer["body"] == "ended"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"invocationID": "x"}'])
def test_what_is_no_call_is_refused(path: Path, body: bytes) -> None:
    with serving(handler(lambda payload: payload), path) as client:
        assert client.ask("POST", "/invoke", body)[0] == 400
        assert client.ask("POST", "/other", {})[0] == 404
        assert client.ask("GET", "/invoke")[0] == 405
        assert client.ask("POST", "/healthz", {})[0] == 405


def test_a_call_is_read_as_it_was_written() -> None:
    call = Call("call-1", "f", 2, None, "text/plain", {"a": "b"}, {"c": "d"}, [1])

    assert parse_call(call.to_json()) == call
    with pytest.raises(BadCallError):
        parse_call([])


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("words", "should be module:function"),
        ("no.such.module:f", "cannot be imported"),
        ("json:dumps", "decorate it with @handler"),
        ("json:nothing", "there is no nothing in json"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_sentence(place: str, words: str) -> None:
    with pytest.raises(LoadError, match=words):
        load_function(place)


def test_a_file_is_loaded_by_its_path() -> None:
    assert load_function("examples/functions/words.py:count").concurrency == 2
