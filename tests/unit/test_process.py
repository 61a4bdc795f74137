"""One JSON object per line, whatever is logged."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from gpu_platform.process import JsonFormatter


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("test-json-logs")
    logger.addHandler(handler)
    logger.propagate = False
    yield stream
    logger.removeHandler(handler)


def only_line(stream: io.StringIO) -> dict[str, Any]:
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    entry: dict[str, Any] = json.loads(lines[0])
    return entry


def test_fields_stand_beside_the_message(written: io.StringIO) -> None:
    logging.getLogger("test-json-logs").warning("unit.%s", "failed", extra={"namespace": "a", "tries": 3})

    entry = only_line(written)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "warning",
        "logger": "test-json-logs",
        "message": "unit.failed",
        "namespace": "a",
        "tries": 3,
    }


def test_a_traceback_stays_on_the_line(written: io.StringIO) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("test-json-logs").exception("pass.failed")

    assert "ValueError: two\nlines" in only_line(written)["traceback"]


def test_what_json_cannot_say_becomes_text_and_no_field_hides_the_message(written: io.StringIO) -> None:
    logging.getLogger("test-json-logs").error("said", extra={"value": {1}, "level": "none", "time": "none"})

    entry = only_line(written)
    assert (entry["value"], entry["level"], entry["message"]) == ("{1}", "error", "said")
    assert entry["time"] != "none"
