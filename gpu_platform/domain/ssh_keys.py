"""Public SSH keys, as one writes them into `authorized_keys`: `ssh-ed25519 AAAA… somebody@somewhere`.

A key that the server cannot read locks its owner out without a word, so it is taken apart here and refused in words.
What would take arithmetic is left to the server: whether a point is on its curve, whether a modulus has two factors.
"""

import base64
import binascii
from dataclasses import dataclass

LENGTH_BYTES = 4
ED25519_BYTES = 32
UNCOMPRESSED = 4
"""The first byte of a point that is written with both coordinates (SEC 1). OpenSSH reads no other."""

COORDINATE_BYTES = {"nistp256": 32, "nistp384": 48, "nistp521": 66}

RSA_BITS = range(1_024, 16_384 + 1)
"""From OpenSSH's RequiredRSASize to the largest number that it reads."""

RSA_EXPONENTS = range(3, 2**64, 2)
"""OpenSSL refuses longer ones with large keys. Real ones are 65537, and seldom smaller."""

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
    if len(values) != PARTS[type_] or not all(values):
        raise _incomplete(type_)
    if type_ == "ssh-rsa":
        _check_rsa(*values)
    elif "ecdsa" in type_:
        _check_point(type_, *values[:2])
    elif len(values[0]) != ED25519_BYTES:
        raise _incomplete(type_)


def _check_rsa(exponent: bytes, modulus: bytes) -> None:
    # The first bit is the sign, and a negative number is none of a key.
    if int.from_bytes(exponent, signed=True) not in RSA_EXPONENTS:
        raise PublicKeyError("holds an RSA key with an exponent that the server does not take; make a new pair")
    bits = int.from_bytes(modulus).bit_length() if int.from_bytes(modulus, signed=True) > 0 else 0
    if bits not in RSA_BITS:
        limits = f"{RSA_BITS[0]} to {RSA_BITS[-1]}"
        raise PublicKeyError(f"holds an RSA key of {bits} bits, and the server takes {limits}; make a new pair")


def _check_point(type_: str, curve: bytes, point: bytes) -> None:
    wanted = type_.removeprefix("sk-").removeprefix("ecdsa-sha2-").removesuffix("@openssh.com")
    if curve != wanted.encode():
        raise PublicKeyError(f"says {type_}, but holds a point of another curve")
    if len(point) != 1 + 2 * COORDINATE_BYTES[wanted] or point[0] != UNCOMPRESSED:
        raise _incomplete(type_)


def _incomplete(type_: str) -> PublicKeyError:
    return PublicKeyError(f"holds no complete {type_} key; is the line complete?")


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
