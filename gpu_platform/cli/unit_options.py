"""Options that describe a unit and its SSH, and the requests that they make. Pure, but for reading files of keys."""

import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_platform.client.calls import drop_none
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.ssh import PublicKeyError, parse_public_key

PROTOCOLS = ("TCP", "UDP", "SCTP")
LARGEST_PORT = 65_535

PROBE_FORM = "http:PORT/PATH, tcp:PORT or exec:COMMAND"
PROBE_NUMBERS = {
    "delay": "initialDelaySeconds",
    "period": "periodSeconds",
    "timeout": "timeoutSeconds",
    "failures": "failureThreshold",
}
PROBE = re.compile(rf"(http|tcp|exec):(.*?)((?:,(?:{'|'.join(PROBE_NUMBERS)})=[0-9]{{1,9}})*)", re.DOTALL)


def _probe_option(kind: str, meaning: str) -> Any:
    return typer.Option(
        f"--{kind}-probe",
        help=f"{meaning}: {PROBE_FORM}, optionally with ,period=1,timeout=1,delay=0,failures=3. `none` removes it.",
        metavar="PROBE",
    )


class Scheme(StrEnum):
    HTTP = "http"
    HTTPS = "https"
    TCP = "tcp"


@dataclass(frozen=True)
class ContainerOptions:
    """The options of a container. None and empty: not given."""

    command: Annotated[
        list[str] | None, typer.Option("--command", help="A word of the command, instead of the image's; repeat it.")
    ] = None
    arg: Annotated[list[str] | None, typer.Option("--arg", help="An argument, as --arg=-m; repeat it.")] = None
    env: Annotated[
        list[str] | None, typer.Option("--env", help="A variable as NAME=VALUE; repeat it.", metavar="A=B")
    ] = None

    def build_template(self) -> Json:
        """The fields of a template whose options are given."""
        return drop_none(
            command=self.command or None,
            args=self.arg or None,
            envs=[parse_env(text) for text in self.env or ()] or None,
        )


@dataclass(frozen=True)
class UnitOptions(ContainerOptions):
    """The options of a unit."""

    port: Annotated[
        list[str] | None,
        typer.Option("--port", help="A port as name=8080 or name=8080/UDP; repeat it.", metavar="NAME=PORT"),
    ] = None
    primary_port: Annotated[
        str | None, typer.Option("--primary-port", help="The port, by its name, that the unit's URL is about.")
    ] = None
    scheme: Annotated[Scheme | None, typer.Option(help="First word of the unit's URL.")] = None
    public: Annotated[
        bool | None,
        typer.Option("--public/--private", help="Whether everybody may call it at an address on the internet."),
    ] = None
    tenant_access: Annotated[
        bool | None,
        typer.Option("--tenant-access/--no-tenant-access", help="Whether your other units may call it, on its ports."),
    ] = None
    startup_probe: Annotated[str | None, _probe_option("startup", "Until this succeeds, the other probes wait")] = None
    readiness_probe: Annotated[str | None, _probe_option("readiness", "While this fails, the unit is not Ready")] = None
    liveness_probe: Annotated[
        str | None,
        _probe_option("liveness", "When this fails, the container is restarted"),
    ] = None
    mount: Annotated[
        list[str] | None,
        typer.Option(
            "--mount", help="A storage as NAME:/path, with :ro to only read it; repeat it.", metavar="NAME:/PATH[:ro]"
        ),
    ] = None

    def build_request(self) -> Json:
        """The fields of a request whose options are given."""
        probes = {"startup": self.startup_probe, "readiness": self.readiness_probe, "liveness": self.liveness_probe}
        template = self.build_template() | drop_none(
            ports=[parse_port(text) for text in self.port or ()] or None,
            probes={kind: parse_probe(kind, text) for kind, text in probes.items() if text is not None} or None,
        )
        scheme = self.scheme.value if self.scheme else None
        access = drop_none(primaryPort=self.primary_port, scheme=scheme, public=self.public, tenant=self.tenant_access)
        return drop_none(
            template=template or None,
            access=access or None,
            storageMounts=[parse_mount(text) for text in self.mount or ()] or None,
        )


@dataclass(frozen=True)
class NewUnitOptions(UnitOptions):
    """The options of a new unit."""

    scheme: Annotated[Scheme | None, typer.Option(help="First word of the unit's URL (http).")] = None


def parse_env(text: str) -> Json:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} should look like NAME=VALUE", param_hint="--env")
    return {"name": name, "value": value}


def parse_port(text: str) -> Json:
    name, _, target = text.partition("=")
    number, _, protocol = target.partition("/")
    if not name or not number.isascii() or not number.isdigit():
        raise typer.BadParameter(f"{text!r} should look like http=8080 or dns=53/UDP", param_hint="--port")
    if len(number) > len(str(LARGEST_PORT)) or not 1 <= int(number) <= LARGEST_PORT:
        raise typer.BadParameter(
            f"{text!r}: port {number} is out of range; use 1 to {LARGEST_PORT}", param_hint="--port"
        )
    if (protocol or "TCP").upper() not in PROTOCOLS:
        raise typer.BadParameter(
            f"{text!r}: protocol {protocol!r} is not one of {', '.join(PROTOCOLS)}", param_hint="--port"
        )
    port: Json = {"name": name, "port": int(number)}
    return {**port, "protocol": protocol.upper()} if protocol else port


def parse_mount(text: str) -> Json:
    name, _, place = text.partition(":")
    path, colon, mode = place.partition(":")
    if not name or not path.startswith("/") or (colon and mode != "ro"):
        raise typer.BadParameter(f"{text!r} should look like data:/mnt/data or data:/mnt/data:ro", param_hint="--mount")
    mount: Json = {"name": name, "mountPath": path}
    return {**mount, "readOnly": True} if colon else mount


def parse_probe(kind: str, text: str) -> Json | None:
    """None: no probe."""
    if text == "none":
        return None
    option = f"--{kind}-probe"
    found = PROBE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} should be {PROBE_FORM}, or none", param_hint=option)
    way, target, numbers = found.groups()
    given = [number.partition("=") for number in numbers.split(",")[1:]]
    return {**_parse_way(way, target, option), **{PROBE_NUMBERS[name]: int(value) for name, _, value in given}}


def _parse_way(way: str, target: str, option: str) -> Json:
    if way == "exec":
        try:
            command = shlex.split(target)
        except ValueError as error:
            raise typer.BadParameter(f"{target!r} is not a command: {error}", param_hint=option) from None
        if not command:
            raise typer.BadParameter("should name a command, such as exec:test -e /ready", param_hint=option)
        return {"command": command}
    port, slash, path = target.partition("/")
    if not port or port.isdigit() or "," in target or (slash and way == "tcp"):
        example = "http:web/healthz" if way == "http" else "tcp:web"
        raise typer.BadParameter(
            f"{target!r} should name a port of the unit, such as {example} with --port web=8080, "
            f"and after a comma only {', '.join(PROBE_NUMBERS)}",
            param_hint=option,
        )
    return {way: {"port": port, **({"path": f"/{path}"} if slash else {})}}


PUTTY_HEADER = "PuTTY-User-Key-File"
"""Of a .ppk file, which holds both halves of a pair."""


@dataclass(frozen=True)
class SshOptions:
    """The options of SSH. None and empty: not given."""

    ssh_key: Annotated[
        list[Path] | None,
        typer.Option("--ssh-key", help="A file of public keys that may log in by SSH; repeat it.", metavar="FILE"),
    ] = None
    ssh_server: Annotated[
        str | None, typer.Option("--ssh-server", help="The FRP server that brings SSH to the unit.")
    ] = None
    ssh_domain: Annotated[
        str | None, typer.Option("--ssh-domain", help="Its domain: the unit is <unit>.<namespace>.<domain> there.")
    ] = None
    ssh_token_file: Annotated[
        Path | None, typer.Option("--ssh-token-file", help="A file with the FRP server's token.", metavar="FILE")
    ] = None

    def build_request(self) -> Json:
        """The fields of a request whose options are given."""
        keys = [line for file in self.ssh_key or () for line in _read_keys(file)]
        token_file = self.ssh_token_file
        block = drop_none(
            authorizedKeys=keys or None,
            serverAddr=self.ssh_server,
            domainSuffix=self.ssh_domain,
            token=_read_text("--ssh-token-file", token_file).strip() if token_file else None,
        )
        return {"ssh": {"enabled": True, **block}} if block else {}


def _read_keys(file: Path) -> list[str]:
    """Checked before anything is sent: what is no public key may be somebody's secret."""
    text = _read_text("--ssh-key", file)
    if "PRIVATE KEY" in text or text.startswith(PUTTY_HEADER):
        raise typer.BadParameter(
            f"{file} is a private key, and was not sent: say --ssh-key {file}.pub", param_hint="--ssh-key"
        )
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if _is_key_line(line)]
    if not lines:
        raise typer.BadParameter(f"{file} holds no key", param_hint="--ssh-key")
    for number, line in lines:
        try:
            parse_public_key(line)
        except PublicKeyError as error:
            raise typer.BadParameter(f"line {number} of {file} {error}", param_hint="--ssh-key") from None
    return [line for _, line in lines]


def _is_key_line(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _read_text(option: str, file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise typer.BadParameter(f"cannot read {file}: {reason}", param_hint=option) from None
