"""SSH blocks and keys for tests."""

import base64
from typing import Any

from gpu_platform.domain.json_text import Json


def encode_key(*values: bytes) -> str:
    blob = b"".join(len(value).to_bytes(4) + value for value in values)
    return base64.b64encode(blob).decode()


def make_key(seed: int = 7, comment: str = "somebody@somewhere") -> str:
    """An ed25519 key that is well formed; nobody has its other half."""
    return f"ssh-ed25519 {encode_key(b'ssh-ed25519', bytes([seed]) * 32)} {comment}".strip()


def make_ecdsa_key(curve: str, coordinate_bytes: int, *, type_: str | None = None, first: int = 4) -> str:
    """A point of that size, which is on no curve."""
    type_ = type_ or f"ecdsa-sha2-{curve}"
    point = bytes([first]) + b"\x01" * (2 * coordinate_bytes)
    application = [b"ssh:"] if type_.startswith("sk-") else []
    return f"{type_} {encode_key(type_.encode(), curve.encode(), point, *application)}"


def make_rsa_key(bits: int, exponent: int = 65_537) -> str:
    """A modulus of so many bits, which is no product of two primes."""
    modulus = (1 << (bits - 1)) | 1
    numbers = (value.to_bytes(value.bit_length() // 8 + 1) for value in (exponent, modulus))
    return f"ssh-rsa {encode_key(b'ssh-rsa', *numbers)}"


def ssh_block(**fields: Any) -> Json:
    return {
        "enabled": True,
        "authorizedKeys": [make_key()],
        "serverAddr": "frp.example.com",
        "domainSuffix": "ssh.example.com",
        **fields,
    }
