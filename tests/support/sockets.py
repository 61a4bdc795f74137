"""With whom a process is connected, or tries to be, as the kernel knows it."""

import struct
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

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
