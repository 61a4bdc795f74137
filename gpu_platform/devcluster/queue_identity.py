"""Who is who in the embedded cluster's NATS. The keys are made once per directory; credentials at every start."""

import secrets
from datetime import datetime
from pathlib import Path

from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.errors import DevClusterError
from gpu_platform.devcluster.files import write_atomically
from gpu_platform.domain.queue_keyring import Keyring, KeyringError, parse_keyring
from gpu_platform.nats.permissions import QueueUser


def credentials_file(directory: ClusterDirectory, user: QueueUser) -> Path:
    return directory.nats_identity / f"{user}.creds"


def signing_key_file(directory: ClusterDirectory) -> Path:
    return directory.nats_identity / "signing.key"


def ensure_identities(directory: ClusterDirectory, now: datetime) -> Keyring:
    """Make what is missing of the keys, and everybody's credentials anew."""
    keyring = _ensure_keyring(directory.nats_identity / "keys.json")
    for user in QueueUser:
        write_atomically(credentials_file(directory, user), keyring.credentials_of(user, now).render())
    write_atomically(signing_key_file(directory), f"{keyring.workers}\n")
    return keyring


def _ensure_keyring(file: Path) -> Keyring:
    try:
        return parse_keyring(file.read_text())
    except FileNotFoundError:
        keyring = Keyring.new(secrets.token_bytes)
        write_atomically(file, keyring.render())
        return keyring
    except KeyringError as error:
        raise DevClusterError(f"{file} cannot be used: {error}; without it, new keys are made") from error
