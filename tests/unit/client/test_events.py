"""Server-sent events: lines in, events out."""

from gpu_platform.client.events import EventReader, ServerEvent, WatchStream


def test_events_are_read_as_the_standard_has_them() -> None:
    reader = EventReader(lambda data: data)
    lines = ["event:added", "data: [1,", "data: 2]", "", ": a comment", "", "data: text", "", "data: cut off"]

    assert [event for line in lines for event in reader.feed(line)] == [
        ServerEvent("added", None, [1, 2]),
        ServerEvent("message", None, "text"),
    ]


def test_a_line_that_arrives_in_parts_is_one_line_and_only_a_line_feed_ends_it() -> None:
    watch = WatchStream("/gpu-units", {}, lambda data: data)
    watch.begin()
    pieces = (b'data: {"message": "a\xe2\x80', b'\xa8b"}\r', b"\n\r", b"\nda", b"ta: {}\n")

    assert [event.data for piece in pieces for event in watch.feed(piece)] == [{"message": "a\u2028b"}]
