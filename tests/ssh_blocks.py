"""SSH blocks and keys for tests."""

import base64
from typing import Any

Json = dict[str, Any]


def encode_key(*values: bytes) -> str:
    blob = b"".join(len(value).to_bytes(4) + value for value in values)
    return base64.b64encode(blob).decode()


def make_key(seed: int = 7, comment: str = "somebody@somewhere") -> str:
    """An ed25519 key that is well formed; nobody has its other half."""
    return f"ssh-ed25519 {encode_key(b'ssh-ed25519', bytes([seed]) * 32)} {comment}".strip()


def ssh_block(**fields: Any) -> Json:
    return {
        "enabled": True,
        "authorizedKeys": [make_key()],
        "serverAddr": "frp.example.com",
        "domainSuffix": "ssh.example.com",
        **fields,
    }
