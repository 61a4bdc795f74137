"""Public SSH keys, as one writes them into `authorized_keys`: `ssh-ed25519 AAAA… somebody@somewhere`.

A key that the server cannot read locks its owner out without a word, so it is taken apart here and refused in words.
"""

import base64
import binascii
from dataclasses import dataclass

LENGTH_BYTES = 4
ED25519_BYTES = 32

PARTS = {
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
"""The types that OpenSSH takes today, and how many values each holds besides its name (RFC 4253, 5656 and 8709, and
OpenSSH's PROTOCOL.u2f)."""


class PublicKeyError(Exception):
    """Not a public key. The message says why, without repeating what was sent."""


@dataclass(frozen=True)
class PublicKey:
    type: str
    encoded: str
    comment: str

    @property
    def line(self) -> str:
        return " ".join(part for part in (self.type, self.encoded, self.comment) if part)


def parse_public_key(text: str) -> PublicKey:
    text = text.strip()
    if "PRIVATE KEY" in text:
        raise PublicKeyError("is a private key, which nobody should ever send: make a new pair, and send its .pub file")
    if not text.isprintable():
        raise PublicKeyError("should be one line without control characters")
    type_, _, rest = text.partition(" ")
    encoded, _, comment = rest.strip().partition(" ")
    if type_ not in PARTS:
        raise PublicKeyError(f"should begin with the type of the key, without options: {', '.join(PARTS)}")
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise PublicKeyError(f"what follows {type_} is not base64; is the line complete?") from None
    _check_blob(type_, blob)
    return PublicKey(type_, encoded, comment.strip())


def _check_blob(type_: str, blob: bytes) -> None:
    name, *values = _split(blob) or [type_.encode()]
    if name != type_.encode():
        raise PublicKeyError(f"says {type_}, but holds a key of another type")
    is_short = type_.endswith("ssh-ed25519") and len(values[:1]) == 1 and len(values[0]) != ED25519_BYTES
    if len(values) != PARTS[type_] or is_short or not all(values):
        raise PublicKeyError(f"holds no complete {type_} key; is the line complete?")


def _split(blob: bytes) -> list[bytes]:
    """The values, each with its length before it."""
    values = []
    while blob:
        end = LENGTH_BYTES + int.from_bytes(blob[:LENGTH_BYTES])
        if len(blob) < LENGTH_BYTES or len(blob) < end:
            raise PublicKeyError("ends in the middle of the key; is the line complete?")
        values.append(blob[LENGTH_BYTES:end])
        blob = blob[end:]
    return values
