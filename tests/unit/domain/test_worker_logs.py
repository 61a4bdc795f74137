"""The last lines of a worker: bounded, in order, and none of them twice."""

import pytest

from gpu_platform.domain.worker_logs import (
    BYTES,
    LINE_BYTES,
    LINES,
    WORKERS,
    LineSplitter,
    Position,
    appended,
    find_surplus,
    keep_last,
    merge_logs,
    moment_of,
    parse_line,
    text_of,
)


def line(second: float, text: str = "x") -> str:
    return parse_line(f"2026-11-18T12:00:{second:09.6f}Z {text}".encode())


@pytest.mark.parametrize(
    ("stamp", "moment"),
    [
        ("2026-11-18T12:00:00Z", "2026-11-18T12:00:00.000000Z"),
        ("2026-11-18T12:00:00.5Z", "2026-11-18T12:00:00.500000Z"),
        ("2026-11-18T12:00:00.123456789Z", "2026-11-18T12:00:00.123456Z"),
        ("2026-11-18T14:00:00.5+02:00", "2026-11-18T12:00:00.500000Z"),
    ],
)
def test_the_time_of_a_line_has_one_form(stamp: str, moment: str) -> None:
    parsed = parse_line(f"{stamp}  indented ä".encode())

    assert (moment_of(parsed), text_of(parsed)) == (moment, " indented ä")


def test_a_line_without_a_time_and_one_that_is_no_text_are_kept() -> None:
    assert text_of(parse_line(b"failed to watch a file")) == "failed to watch a file"
    assert text_of(parse_line(b"2026-11-18T12:00:00Z \xff")) == "\N{REPLACEMENT CHARACTER}"
    assert text_of(parse_line(b"2026-11-18T12:00:00Z ")) == ""


def test_a_long_line_is_cut() -> None:
    text = text_of(line(0, "ä" * LINE_BYTES))

    assert len(text.encode()) <= LINE_BYTES + len(" (cut)")
    assert text.endswith("ä (cut)")


def test_lines_and_bytes_are_bounded_and_the_last_stay() -> None:
    many = [line(0, str(number)) for number in range(2 * LINES)]
    assert keep_last(many) == tuple(many[-LINES:])

    large = [line(0, "x" * 4_000) for _ in range(40)]
    kept = keep_last(large)
    assert 0 < len("\n".join(kept).encode()) <= BYTES
    assert len(kept) < len(large)


def test_a_log_that_is_read_again_adds_what_is_new() -> None:
    kept = (line(1, "a"), line(2, "b"), line(2, "b"))
    position = Position(kept)
    is_new = position.find_new()
    read = (*kept, line(2, "b"), line(2, "c"), line(3, "a"))

    assert [each for each in read if is_new(each)] == [line(2, "b"), line(2, "c"), line(3, "a")]
    assert Position().find_new()(line(1))
    position.advance(line(3, "a"))
    assert [each for each in read if position.find_new()(each)] == []


def test_pieces_become_lines_and_a_line_without_an_end_is_not_held() -> None:
    splitter = LineSplitter()
    assert splitter.split(b"one\ntw") == [b"one"]
    assert splitter.split(b"o\n\n") == [b"two", b""]
    for _ in range(100):
        assert splitter.split(b"x" * LINE_BYTES) == []

    [rest] = splitter.finish()
    assert len(rest) < 2 * LINE_BYTES
    stamped = LineSplitter()
    stamped.split(b"2026-11-18T12:00:00Z " + b"x" * (2 * LINE_BYTES))
    assert text_of(parse_line(stamped.finish()[0])) == "x" * LINE_BYTES + " (cut)"


@pytest.mark.parametrize(
    ("before", "after", "added"),
    [
        ("", "ab", "ab"),
        ("ab", "ab", ""),
        ("ab", "abc", "c"),
        ("abc", "bcd", "d"),
        ("aaa", "aab", "b"),
        ("abc", "xyz", "xyz"),
    ],
)
def test_what_was_added_between_two_looks(before: str, after: str, added: str) -> None:
    assert "".join(appended(list(before), list(after))) == added


def test_of_the_workers_that_are_gone_the_last_stay() -> None:
    gone = [f"gone-{number}" for number in range(WORKERS + 2)]
    living = [f"living-{number}" for number in range(WORKERS)]

    assert find_surplus([living[0], *gone, *living[1:]], set(living)) == gone[:2]
    assert find_surplus(gone[2:], set()) == []


def test_the_lines_of_several_workers_come_in_order() -> None:
    first, second = (line(1, "a"), line(3, "c")), (line(2, "b"), line(3, "d"))

    assert [(worker, text_of(each)) for worker, each in merge_logs([("one", first), ("two", second)])] == [
        ("one", "a"),
        ("two", "b"),
        ("one", "c"),
        ("two", "d"),
    ]
