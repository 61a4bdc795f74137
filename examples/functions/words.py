"""A function that needs no GPU: counts words. `delay`, `crash` and `repeat` are there to see what the platform
does with slow calls, with workers that die and with large answers."""

import os
import time
from typing import Any

from gpu_platform.functions import Context, handler


@handler(concurrency=2)
def count(payload: dict[str, Any], context: Context) -> dict[str, Any]:
    if payload.get("crash", 0) >= context.attempt:
        os._exit(1)
    ends_at = time.monotonic() + payload.get("delay", 0)
    while time.monotonic() < ends_at and not context.cancelled.is_set():
        time.sleep(0.05)
    if repeat := payload.get("repeat"):
        return {"text": payload["text"] * repeat}
    return {"words": len(payload["text"].split()), "attempt": context.attempt}
