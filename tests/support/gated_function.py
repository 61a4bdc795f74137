"""A function for tests that must know when a call ends: it waits until a file is there."""

import time
from pathlib import Path
from typing import Any

from serverless import Context, handler


@handler(concurrency=2)
def wait(payload: dict[str, Any], context: Context) -> dict[str, Any]:
    while not Path(payload["until"]).exists() and not context.cancelled.is_set():
        time.sleep(0.02)
    return {"attempt": context.attempt}
