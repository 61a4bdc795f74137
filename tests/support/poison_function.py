"""A function for tests with several calls in one process: the first run of each waits, and a poison call ends it."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from serverless import Context, handler

_under_way: set[str] = set()
_lock = threading.Lock()


@handler(concurrency=4)
def gather(payload: dict[str, Any], context: Context) -> dict[str, Any]:
    """Leaves a file for each run. A first run ends with its process; the poison call ends that once `go` is there."""
    place = Path(payload["place"])
    with _lock:
        _under_way.add(context.invocation_id)
        ran = len(list(place.glob(f"{context.invocation_id}.*")))
        (place / f"{context.invocation_id}.{ran}").touch()
    while ran == 0 and not context.cancelled.is_set():
        if payload["poison"] and (place / "go").exists():
            os._exit(1)
        time.sleep(0.02)
    if payload["poison"]:
        os._exit(1)
    time.sleep(0.2)
    with _lock:
        _under_way.discard(context.invocation_id)
        return {"beside": sorted(_under_way)}
