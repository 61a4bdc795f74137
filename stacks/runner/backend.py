"""The backend's files: where a stack's state lies, how it is encrypted, and what Pulumi keeps in a root on disk.

A backend URL has 256 roots below it. The files are Pulumi's own: here they are read, counted and deleted; written only
to undo what a failed run left.

All stacks share one salt, so that each CLI process derives one key, and none re-encrypts what another wrote. Its form
is that of Pulumi's passphrase secrets provider: `v1:<salt>:v1:<nonce>:<the word pulumi, encrypted>`.
"""

import gzip
import hashlib
import json
import os
import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import StackAddress, StackKind, parse_address
from gpu_platform.process import write_atomically

ITERATIONS = 1_000_000
"""Pulumi's own number. About 0.4 s of one core, once per process of ours and once per CLI process."""

PROOF = b"pulumi"

KEPT_UPDATES = 5
"""Newest updates of a stack's history that stay. Pulumi itself never throws one away. Chosen by feel."""

WITHOUT_ATTRIBUTES = "metadata=skip"
"""Beside each file in a directory the CLI would keep one with its attributes, which it does not write as one: killed at
that moment, it leaves an empty one, and the stack cannot be read any more."""

STATE_SUFFIXES = (".json.gz", ".json")
"""As we write it, and as somebody else's CLI may have left it."""

SHARDS = tuple(f"{number:02x}" for number in range(256))


def write_file(path: Path, text: str) -> None:
    """Does nothing when the file says so already."""
    if not path.exists() or path.read_text() != text:
        write_atomically(path, text)


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


def shard_of(stack: str) -> str:
    return hashlib.sha256(stack.encode()).hexdigest()[:2]


def build_root_url(backend_url: str, stack: str) -> str:
    """One directory listing is part of every CLI call, and a root with 10,000 stacks doubles the time of each."""
    return build_shard_url(backend_url, shard_of(stack))


def build_shard_url(backend_url: str, shard: str) -> str:
    parts = urlsplit(backend_url)
    query = parts.query or (WITHOUT_ATTRIBUTES if parts.scheme == "file" else "")
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{shard}", query=query))


def find_directory(url: str) -> Path | None:
    """The directory behind a `file://` URL; None for any other backend."""
    parts = urlsplit(url)
    return Path(parts.netloc + parts.path).expanduser() if parts.scheme == "file" else None


def build_absolute_url(url: str) -> str:
    """Of a directory: the CLI works in another one than we do."""
    directory = find_directory(url)
    return url if directory is None else urlunsplit(urlsplit(url)._replace(netloc="", path=str(directory.absolute())))


@dataclass(frozen=True)
class StackFiles:
    """One stack in a root on disk."""

    root: Path
    address: StackAddress

    @property
    def locks(self) -> Path:
        return self._below("locks", "organization") / self.address.stack

    @property
    def pids(self) -> Path:
        """Pid files of the CLI processes that work on the stack. Not among Pulumi's files, all of which it reads."""
        return self.root.joinpath(".gpu-platform", "pids", self.address.project, self.address.stack)

    @property
    def history(self) -> Path:
        return self._below("history") / self.address.stack

    def find_state(self) -> Path | None:
        directory, name = self._below("stacks"), self.address.stack
        return next((path for suffix in STATE_SUFFIXES if (path := directory / f"{name}{suffix}").is_file()), None)

    def read_state(self) -> Json | None:
        path = self.find_state()
        if path is None:
            return None
        raw = path.read_bytes()
        state: Json = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        return state

    def says_something(self) -> bool:
        """Whether the state has a resource that the program declared. False also for one that nobody can read."""
        try:
            latest = ((self.read_state() or {}).get("checkpoint") or {}).get("latest") or {}
            return any(not each["type"].startswith("pulumi:") for each in latest.get("resources") or ())
        except (OSError, ValueError, EOFError, AttributeError, KeyError, TypeError):
            return False

    @contextmanager
    def keeping_what_it_says(self) -> Iterator[None]:
        """A run that refreshes first forgets what is gone, and if it then fails to make that again, saves a state that
        says nothing: the only record of an object would be lost with it. So the old state comes back."""
        path = self.find_state()
        before = path.read_bytes() if path is not None and self.says_something() else None
        try:
            yield
        except BaseException:
            is_free = not any(self.locks.glob("*.json"))
            if path is not None and before is not None and is_free and not self.says_something():
                write_atomically(path, before)
            raise

    def prune_history(self) -> None:
        """An update has four files that begin with `<stack>-<nanoseconds>.`."""
        files: dict[str, list[Path]] = {}
        for path in self.history.glob(f"{self.address.stack}-*"):
            files.setdefault(path.name.removeprefix(self.address.stack).split(".")[0], []).append(path)
        for update in sorted(files)[:-KEPT_UPDATES]:
            for path in files[update]:
                path.unlink(missing_ok=True)

    def remove_remains(self) -> None:
        """What `stack rm` leaves: copies of the state, and directories."""
        states = self._below("stacks")
        for suffix in STATE_SUFFIXES:
            for ending in (".bak", ".bak.attrs"):
                (states / f"{self.address.stack}{suffix}{ending}").unlink(missing_ok=True)
        for unfinished in states.glob(f"{self.address.stack}.json*.tmp"):
            # Of a state that was being saved when the CLI was killed.
            unfinished.unlink(missing_ok=True)
        for directory in (self.history, self.pids, self._below("backups") / self.address.stack):
            shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):
            # Not with a lock in it: its holder may live.
            self.locks.rmdir()

    def _below(self, *names: str) -> Path:
        return self.root.joinpath(".pulumi", *names, self.address.project)


def list_files(root: Path) -> Iterator[StackAddress]:
    """Of one root on disk. What lies in another root than its name says is not found by anybody else either."""
    for kind in StackKind:
        for path in (root / ".pulumi" / "stacks" / kind).glob("*"):
            # A copy (`.bak`) ends otherwise.
            suffix = next((each for each in STATE_SUFFIXES if path.name.endswith(each)), None)
            address = parse_address(kind, path.name.removesuffix(suffix)) if suffix else None
            if address is not None and shard_of(address.stack) == root.name:
                yield address
