import asyncio
from pathlib import Path

import pytest

from gpu_platform.devcluster.hostnode import logs as log_writer
from gpu_platform.devcluster.hostnode.logs import (
    PIECE_BYTES,
    LineSplitter,
    LogOptions,
    LogWriter,
    parse_line,
    read_last,
    stream_log,
)
from tests.unit.devcluster.hostnode.builders import NOW

SECOND = 1_000_000_000


async def read(path: Path, options: LogOptions | None = None) -> bytes:
    return b"".join([chunk async for chunk in stream_log(path, options or LogOptions(), lambda: True)])


def write(path: Path, *lines: str) -> None:
    log = LogWriter(path)
    for line in lines:
        log.write("stdout", f"{line}\n".encode())
    log.close()


class TestLines:
    def test_a_line_has_time_stream_tag_and_text(self) -> None:
        [line] = LineSplitter("stderr").split(b"hello world\n", 5 * SECOND + 12)
        assert line == b"1970-01-01T00:00:05.000000012Z stderr F hello world\n"
        assert parse_line(line).text == b"hello world\n"

    def test_lines_are_joined_from_the_pieces_that_come(self) -> None:
        splitter = LineSplitter("stdout")
        [line] = splitter.split(b"one\ntw", 0)
        assert line.endswith(b" F one\n")
        assert [line.split(b" ", 3)[3] for line in splitter.split(b"o\n\n", 0)] == [b"two\n", b"\n"]

    def test_a_line_without_end_is_cut_into_bounded_pieces(self) -> None:
        splitter = LineSplitter("stdout")
        data = b"x" * (3 * PIECE_BYTES + 7)
        lines = [*splitter.split(data, 0), *splitter.split(b"y\n", 0)]
        assert max(len(line) for line in lines) < PIECE_BYTES + 60
        assert b"".join(parse_line(line).text for line in lines) == data + b"y\n"
        assert [line.split(b" ")[2] for line in lines] == [b"P", b"P", b"P", b"F"]

    def test_what_is_left_without_a_line_break_is_kept(self) -> None:
        splitter = LineSplitter("stdout")
        assert list(splitter.split(b"prompt> ", 0)) == []
        [line] = splitter.flush(0)
        assert parse_line(line).text == b"prompt> "
        assert list(splitter.flush(0)) == []


class TestReading:
    async def test_all_of_it_by_default(self, tmp_path: Path) -> None:
        write(tmp_path / "0.log", "one", "two")
        assert await read(tmp_path / "0.log") == b"one\ntwo\n"

    async def test_the_last_lines(self, tmp_path: Path) -> None:
        write(tmp_path / "0.log", "one", "two", "three")
        assert await read(tmp_path / "0.log", LogOptions(tail_lines=2)) == b"two\nthree\n"
        assert await read(tmp_path / "0.log", LogOptions(tail_lines=0)) == b""
        assert await read(tmp_path / "0.log", LogOptions(tail_lines=9)) == b"one\ntwo\nthree\n"

    async def test_at_most_so_many_bytes(self, tmp_path: Path) -> None:
        write(tmp_path / "0.log", "one", "two")
        assert await read(tmp_path / "0.log", LogOptions(limit_bytes=6)) == b"one\ntw"
        assert await read(tmp_path / "0.log", LogOptions(limit_bytes=6, follow=True)) == b"one\ntw"

    async def test_one_stream_only(self, tmp_path: Path) -> None:
        log = LogWriter(tmp_path / "0.log")
        log.write("stdout", b"out\n")
        log.write("stderr", b"err\n")
        log.close()
        assert await read(tmp_path / "0.log", LogOptions(stream="stderr")) == b"err\n"

    async def test_since_a_time_and_with_timestamps(self, tmp_path: Path) -> None:
        path = tmp_path / "0.log"
        splitter = LineSplitter("stdout")
        with path.open("wb") as file:
            for at, text in ((1, b"old\n"), (2, b"new\n"), (3, b"x" * PIECE_BYTES + b"tail\n")):
                file.writelines(splitter.split(text, at * SECOND))
        options = LogOptions(since="1970-01-01T00:00:02.000000", timestamps=True)
        stamp = b"1970-01-01T00:00:0%d.000000000Z "
        assert await read(path, options) == (stamp % 2) + b"new\n" + (stamp % 3) + b"x" * PIECE_BYTES + b"tail\n"

    async def test_followed_until_the_process_is_over(self, tmp_path: Path) -> None:
        log, over = LogWriter(tmp_path / "0.log"), asyncio.Event()
        log.write("stdout", b"one\n")
        chunks = stream_log(tmp_path / "0.log", LogOptions(follow=True), over.is_set)
        assert await anext(chunks) == b"one\n"
        log.write("stdout", b"two\n")
        assert await anext(chunks) == b"two\n"
        log.write("stdout", b"last")
        log.close()
        over.set()
        assert await anext(chunks) == b"last"
        assert [chunk async for chunk in chunks] == []

    async def test_a_log_is_bounded_and_followed_across_its_rotation(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_writer, "ROTATE_BYTES", 1_000)
        path = tmp_path / "0.log"
        log, over = LogWriter(path), asyncio.Event()
        log.write("stdout", b"0\n")
        chunks = stream_log(path, LogOptions(follow=True), over.is_set)
        seen = [await anext(chunks)]
        for number in range(1, 30):
            log.write("stdout", f"{number}\n".encode())
        seen.append(await anext(chunks))
        log.close()
        over.set()
        seen += [chunk async for chunk in chunks]
        assert b"".join(seen).split() == [str(number).encode() for number in range(30)]
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2_000
        assert (await read(path)).split()[-1] == b"29"

    async def test_the_end_of_an_output_is_bounded(self, tmp_path: Path) -> None:
        path = tmp_path / "0.log"
        write(path, *(f"line {number}" for number in range(100)))
        assert read_last(path, lines=2, size=100) == "line 98\nline 99\n"
        assert read_last(path, lines=100, size=8) == "line 99\n"
        assert read_last(tmp_path / "none.log", lines=1, size=1) == ""


class TestOptions:
    def test_as_the_api_server_sends_them(self) -> None:
        query = {"follow": "true", "tailLines": "5", "limitBytes": "9", "timestamps": "true", "stream": "Stderr"}
        assert LogOptions.parse(query, NOW) == LogOptions(
            follow=True, timestamps=True, tail_lines=5, limit_bytes=9, stream="stderr"
        )
        assert LogOptions.parse({"previous": "true", "stream": "All"}, NOW) == LogOptions(previous=True)

    def test_a_beginning_is_a_number_of_seconds_or_a_time(self) -> None:
        assert LogOptions.parse({"sinceSeconds": "5"}, NOW).since == "2030-01-02T03:04:00.000000"
        assert LogOptions.parse({"sinceTime": "2030-01-02T04:04:00+01:00"}, NOW).since == ("2030-01-02T03:04:00.000000")

    @pytest.mark.parametrize("query", [{"tailLines": "x"}, {"sinceTime": "yesterday"}, {"sinceSeconds": "1.5"}])
    def test_nonsense_is_refused(self, query: dict[str, str]) -> None:
        with pytest.raises(ValueError, match=r".+"):
            LogOptions.parse(query, NOW)
