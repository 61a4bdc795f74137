"""One salt for all stacks, so that each CLI process derives one key, and none re-encrypts what another wrote.

The form is that of Pulumi's passphrase secrets provider: `v1:<salt>:v1:<nonce>:<the word pulumi, encrypted>`.
"""

import hashlib
import os
from base64 import b64decode, b64encode
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stacks.runner.files import write_file

ITERATIONS = 1_000_000
"""Pulumi's own number. About 0.4 s of one core, once per process of ours and once per CLI process."""

PROOF = b"pulumi"


def ensure_salt(path: Path, passphrase: str) -> str:
    """The salt kept there, or a new one when there is none or it was made for another passphrase."""
    if path.exists():
        kept = path.read_text().strip()
        if fits(kept, passphrase):
            return kept
    salt = build_salt(passphrase, os.urandom(8), os.urandom(12))
    write_file(path, salt + "\n")
    return salt


def build_salt(passphrase: str, salt: bytes, nonce: bytes) -> str:
    sealed = AESGCM(_derive_key(passphrase, salt)).encrypt(nonce, PROOF, None)
    return f"v1:{_text(salt)}:v1:{_text(nonce)}:{_text(sealed)}"


def fits(kept: str, passphrase: str) -> bool:
    try:
        _, salt, _, nonce, sealed = kept.split(":")
        key = _derive_key(passphrase, b64decode(salt, validate=True))
        return AESGCM(key).decrypt(b64decode(nonce, validate=True), b64decode(sealed, validate=True), None) == PROOF
    except (ValueError, InvalidTag):
        return False


def _derive_key(passphrase: str, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, ITERATIONS, dklen=32)


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()
