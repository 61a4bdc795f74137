"""The end of a log, for the sentence that says why something did not start."""

from pathlib import Path

LINES = 5
LINE_LENGTH = 400
TAIL_BYTES = 64 * 1024


def last_words(log: Path, since: int = 0) -> str:
    """The last lines after the first `since` bytes, which an earlier run wrote; each on a line of its own."""
    try:
        with log.open("rb") as stream:
            end = stream.seek(0, 2)
            stream.seek(max(since, end - TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    lines = [line.rstrip()[:LINE_LENGTH] for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-LINES:]) or "    (it said nothing)"
