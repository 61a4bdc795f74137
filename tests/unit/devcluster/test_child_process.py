"""What of a log goes into an error."""

from pathlib import Path

from gpu_platform.devcluster.child_process import LINE_LENGTH, LINES, TAIL_BYTES, last_words


def test_they_are_the_last_lines_that_say_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n\n" for number in range(100)))

    assert last_words(log).splitlines() == [f"    line {number}" for number in range(100 - LINES, 100)]


def test_they_are_short_whatever_a_program_writes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff" * 3 * TAIL_BYTES)

    [line] = last_words(log).splitlines()

    assert len(line.strip()) == LINE_LENGTH


def test_an_earlier_run_does_not_speak(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of yesterday\n")

    assert last_words(log, since=log.stat().st_size) == "    (it said nothing)"
    assert last_words(tmp_path / "none") == "    (it said nothing)"
