"""The API in a process that records whom it dials, and refuses everybody beyond loopback: a test must not dial either.
Run as a module, with the file of the record in `RECORD_VARIABLE`.

And with whom any process is connected, or tries to be, as the kernel knows it.
"""

import os
import runpy
import struct
import sys
from ipaddress import IPv4Address, IPv6Address
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


CONNECTED = ("01", "02")
"""ESTABLISHED and SYN_SENT."""


def read_peers(pid: int) -> set[IPv4Address | IPv6Address]:
    """The other ends of its TCP connections at this moment."""
    inodes = set(map(_inode_of, Path(f"/proc/{pid}/fd").iterdir()))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {_parse_host(row[2]) for row in rows if row[3] in CONNECTED and row[9] in inodes}


def _inode_of(descriptor: Path) -> str | None:
    try:
        target = str(descriptor.readlink())
    except FileNotFoundError:
        return None
    return target.removeprefix("socket:[").removesuffix("]") if target.startswith("socket:[") else None


def _parse_host(text: str) -> IPv4Address | IPv6Address:
    """`0100007F:1F90` is 127.0.0.1: words of 32 bits in the order of the machine."""
    words = bytes.fromhex(text.partition(":")[0])
    packed = b"".join(struct.pack("=I", word) for (word,) in struct.iter_unpack(">I", words))
    if len(packed) == 4:
        return IPv4Address(packed)
    address = IPv6Address(packed)
    return address.ipv4_mapped or address


if __name__ == "__main__":
    sys.addaudithook(audit)
    runpy.run_module("platform_api", run_name="__main__", alter_sys=True)
