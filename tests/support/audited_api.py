"""The API in a process that records whom it dials, and refuses everybody beyond loopback: a test must not dial either.

Run as a module, with the file of the record in `RECORD_VARIABLE`.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Any

from gpu_platform.domain.network import is_loopback

MODULE = "tests.support.audited_api"
RECORD_VARIABLE = "GPU_PLATFORM_TEST_DIALLED"
DIALS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0}
"""Audit events of Python, and which of their arguments is the host, or an address that begins with it."""


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in DIALS:
        return
    target = arguments[DIALS[event]]
    # A Unix socket has a path and no host.
    if event != "socket.getaddrinfo" and not isinstance(target, tuple):
        return
    host = str(target[0] if isinstance(target, tuple) else target)
    with Path(os.environ[RECORD_VARIABLE]).open("a") as record:
        record.write(f"{host}\n")
    if not is_loopback(host):
        raise ConnectionRefusedError(f"{host} is beyond loopback")


if __name__ == "__main__":
    sys.addaudithook(audit)
    runpy.run_module("platform_api", run_name="__main__", alter_sys=True)
