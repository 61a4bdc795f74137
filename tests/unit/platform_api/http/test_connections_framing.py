"""What of a request could be read in two ways."""

import h11
import pytest

from platform_api.http.connections import HEAD_LIMIT, StrictConnection, find_lines_fault, may_have_chunks

GOOD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (GOOD, None),
        (GOOD + b"a\n b\n", None),
        (b"GET / HT", None),
        (b"GET / HTTP/1.1\r", None),
        (b"\r\n", None),
        (b"\r\n\n x", None),
        (b"GET / HTTP/1.1\n", "LF alone"),
        (b"GET / HTTP/1.1\r\nA: b\n\r\n", "LF alone"),
        (b"\n", "LF alone"),
        (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "folded"),
        (b"GET / HTTP/1.1\r\nA: b\r\n\tc", "folded"),
        (b" GET / HTTP/1.1\r\n", "folded"),
        (b"A" * HEAD_LIMIT, None),
        (b"A" * (HEAD_LIMIT + 1), "more than 16384 bytes"),
        (GOOD + b"x" * HEAD_LIMIT, None),
    ],
)
def test_lines_are_checked_up_to_the_blank_one(data: bytes, fault: str | None) -> None:
    found = find_lines_fault(bytearray(data))
    assert (found is None) if fault is None else (found is not None and fault in found)


@pytest.mark.parametrize(
    ("chunks", "size", "seconds", "is_acceptable"),
    [
        (512, 512, 0, True),
        (516, 513, 0, True),
        (517, 513, 0, False),
        (8_192, 1 << 20, 0, True),
        (3_600, 3_600, 3_600, True),
    ],
)
def test_chunks_are_paid_for_with_bytes_or_time(chunks: int, size: int, seconds: float, is_acceptable: bool) -> None:
    assert may_have_chunks(chunks, size, seconds) is is_acceptable


def parse(data: bytes, step: int) -> tuple[list[h11.Event], str | None]:
    """The events of a request that arrives in parts of so many bytes, and the fault that ended it."""
    connection = StrictConnection()
    events: list[h11.Event] = []
    for start in range(0, len(data), step):
        connection.receive_data(data[start : start + step])
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                return events, connection.fault
            if event is h11.NEED_DATA or event is h11.PAUSED:
                break
            assert isinstance(event, h11.Event)
            events.append(event)
            if isinstance(event, h11.EndOfMessage):
                return events, None
    return events, None


BODIES = {
    "length": GOOD + b"a\nb",
    "chunks": CHUNKED + b"3\r\na\n \r\n0\r\n\r\n",
    "trailers": CHUNKED + b"3\r\na\n \r\n0\r\nX-A: b\r\n\r\n",
}


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("what", BODIES)
def test_a_plain_request_passes_in_parts_of_any_size(what: str, step: int) -> None:
    events, fault = parse(BODIES[what], step)
    assert fault is None
    assert isinstance(events[-1], h11.EndOfMessage)
    assert b"".join(bytes(event.data) for event in events if isinstance(event, h11.Data))[:2] == b"a\n"


REFUSED = {
    "both": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "both Content-Length and Transfer-Encoding",
    ),
    "HTTP/1.0": (b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "needs HTTP/1.1"),
    "LF": (b"POST / HTTP/1.1\nHost: x\r\n\r\n", "LF alone"),
    "LF in trailers": (CHUNKED + b"0\r\nX-A: b\n\r\n", "LF alone"),
    "fold in trailers": (CHUNKED + b"0\r\nX-A: b\r\n c\r\n\r\n", "folded"),
    "tiny chunks": (CHUNKED + b"1\r\nx\r\n" * 2_000, "send larger chunks"),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "not valid"),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01", "not valid"),
}


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize("what", REFUSED)
def test_an_ambiguous_request_is_refused_with_the_reason(what: str, step: int) -> None:
    data, reason = REFUSED[what]
    _, fault = parse(data, step)
    assert fault is not None
    assert reason in fault


def test_chunks_are_counted_for_each_request() -> None:
    connection = StrictConnection()
    body = b"1\r\nx\r\n" * 400 + b"0\r\n\r\n"
    for _ in range(3):
        connection.receive_data(CHUNKED + body)
        while not isinstance(connection.next_event(), h11.EndOfMessage):
            pass
        connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
        connection.send(h11.EndOfMessage())
        connection.start_next_cycle()
