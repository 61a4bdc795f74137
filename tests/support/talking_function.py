"""A function for tests of logs: it writes what it is told, and ends its process if it is told to."""

import os
import signal
from typing import Any

from serverless import handler


@handler
def talk(payload: dict[str, Any]) -> str:
    for line in payload["lines"]:
        print(line, flush=True)  # noqa: T201 - what it is for
    if payload.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "said"
