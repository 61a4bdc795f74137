"""`gpu-platform queue`: who is who in NATS, for an installation of one's own. Talks to nobody."""

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gpu_platform.client import NotConfiguredError
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.nats.credentials import Keyring, KeyringError, parse_keyring
from gpu_platform.nats.permissions import QueueUser
from gpu_platform.process import write_atomically

app = typer.Typer(help="Keys and credentials of NATS.", no_args_is_help=True)

KEYS = "keys.json"

Directory = Annotated[Path, typer.Argument(help="Where the files go; a new one, or an empty one.")]
Renew = Annotated[bool, typer.Option("--renew", help=f"Of the {KEYS} that is there, make credentials anew.")]


@app.callback()
def queue() -> None:
    """Without this, `queue` would be its one command."""


@app.command()
def keys(directory: Directory, renew: Renew = False) -> None:
    """Make the keys of an installation, and of them the content of its Secrets."""
    keyring = _read_keys(directory / KEYS) if renew else _make_keys(directory)
    now = datetime.now(UTC)
    secrets_of = build_secrets(keyring, now)
    for secret, entries in secrets_of.items():
        (directory / secret).mkdir(mode=0o700, exist_ok=True)
        for name, text in entries.items():
            write_atomically(directory / secret / name, text)
    person = directory / f"{QueueUser.PLATFORM}.creds"
    write_atomically(person, keyring.credentials_of(QueueUser.PLATFORM, now).render())
    typer.echo(f"# {directory / KEYS} can make all the rest: keep it where no process of the platform is.")
    typer.echo(f"# {person} is for people, and may do everything in the platform's account.")
    typer.echo("# The Secrets of the cluster, each with the files of its directory:")
    for secret in secrets_of:
        typer.echo(
            f"kubectl create secret generic {secret} -n {SYSTEM_NAMESPACE} --from-file={directory / secret} "
            "--dry-run=client -o yaml | kubectl apply -f -"
        )


def build_secrets(keyring: Keyring, now: datetime) -> dict[str, dict[str, str]]:
    """By name, what each of them holds."""

    def credentials(user: QueueUser) -> str:
        return keyring.credentials_of(user, now).render()

    return {
        "nats-users": {"users.conf": keyring.render_server(now)},
        "nats-api": {"nats.creds": credentials(QueueUser.API)},
        "nats-reconciler": {
            "nats.creds": credentials(QueueUser.FUNCTIONS),
            "system.creds": credentials(QueueUser.SYSTEM),
            "signing.key": f"{keyring.workers}\n",
        },
    }


def _make_keys(directory: Path) -> Keyring:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NotConfiguredError(
            f"{directory} is not empty, and keys are never written over; "
            "name a new directory, or say --renew to make credentials of the keys that are there"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        keyring = Keyring.new(secrets.token_bytes)
        write_atomically(directory / KEYS, keyring.render())
    except OSError as error:
        raise NotConfiguredError(f"{directory} cannot be written: {error.strerror or error}") from error
    return keyring


def _read_keys(file: Path) -> Keyring:
    try:
        return parse_keyring(file.read_text())
    except OSError as error:
        raise NotConfiguredError(f"{file} cannot be read: {error.strerror or error}") from error
    except KeyringError as error:
        raise NotConfiguredError(f"{file} cannot be used: {error}") from error
