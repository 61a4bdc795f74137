"""Options that ask for SSH into a unit, and the block that they make. Pure, but for reading the files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gpu_platform.cli.options import said
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.ssh import PublicKeyError, parse_public_key

Keys = Annotated[
    list[Path] | None,
    typer.Option("--ssh-key", help="A file of public keys that may log in by SSH; repeat it.", metavar="FILE"),
]
Server = Annotated[str | None, typer.Option("--ssh-server", help="The FRP server that brings SSH to the unit.")]
Domain = Annotated[
    str | None, typer.Option("--ssh-domain", help="Its domain: the unit is <unit>.<namespace>.<domain> there.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--ssh-token-file", help="A file with the FRP server's token.", metavar="FILE"),
]


PUTTY_HEADER = "PuTTY-User-Key-File"
"""Of a .ppk file, which holds both halves of a pair."""


@dataclass(frozen=True)
class SshOptions:
    """What was said of SSH. None and empty: not said."""

    keys: Sequence[Path] | None = None
    server: str | None = None
    domain: str | None = None
    token_file: Path | None = None

    def build_request(self) -> Json:
        """Those fields of a request that were said."""
        keys = [line for file in self.keys or () for line in _read_keys(file)]
        block = said(
            authorizedKeys=keys or None,
            serverAddr=self.server,
            domainSuffix=self.domain,
            token=_read("--ssh-token-file", self.token_file).strip() if self.token_file else None,
        )
        return {"ssh": {"enabled": True, **block}} if block else {}


def _read_keys(file: Path) -> list[str]:
    """Checked before anything is sent: what is no public key may be somebody's secret."""
    text = _read("--ssh-key", file)
    if "PRIVATE KEY" in text or text.startswith(PUTTY_HEADER):
        raise typer.BadParameter(
            f"{file} is a private key, and was not sent: say --ssh-key {file}.pub", param_hint="--ssh-key"
        )
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if _is_key(line)]
    if not lines:
        raise typer.BadParameter(f"{file} holds no key", param_hint="--ssh-key")
    for number, line in lines:
        try:
            parse_public_key(line)
        except PublicKeyError as error:
            raise typer.BadParameter(f"line {number} of {file} {error}", param_hint="--ssh-key") from None
    return [line for _, line in lines]


def _is_key(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _read(option: str, file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise typer.BadParameter(f"cannot read {file}: {reason}", param_hint=option) from None
