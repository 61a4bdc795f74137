"""Options that describe a unit, and the requests that they make. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from gpu_platform.cli.options import said
from gpu_platform.cli.request_files import build_named, get_block, require_said
from gpu_platform.cli.views import FunctionView, Json, UnitView

Command = Annotated[
    list[str] | None, typer.Option("--command", help="A word of the command, instead of the image's; repeat it.")
]
Arg = Annotated[list[str] | None, typer.Option("--arg", help="An argument, as --arg=-m; repeat it.")]
Env = Annotated[list[str] | None, typer.Option("--env", help="A variable as NAME=VALUE; repeat it.", metavar="A=B")]
Port = Annotated[
    list[str] | None,
    typer.Option("--port", help="A port as name=8080 or name=8080/UDP; repeat it.", metavar="NAME=PORT"),
]
PrimaryPort = Annotated[
    str | None, typer.Option("--primary-port", help="The port, by its name, that the unit's URL is about.")
]
Public = Annotated[
    bool | None,
    typer.Option("--public/--private", help="Whether everybody may call it at an address on the internet."),
]
Mount = Annotated[
    list[str] | None,
    typer.Option(
        "--mount", help="A storage as NAME:/path, with :ro to only read it; repeat it.", metavar="NAME:/PATH[:ro]"
    ),
]
PROTOCOLS = ("TCP", "UDP", "SCTP")
LARGEST_PORT = 65_535


class Scheme(StrEnum):
    HTTP = "http"
    HTTPS = "https"
    TCP = "tcp"


@dataclass(frozen=True)
class UnitOptions:
    """What was said of a unit. None and empty: not said."""

    image: str | None = None
    command: Sequence[str] | None = None
    args: Sequence[str] | None = None
    envs: Sequence[str] | None = None
    ports: Sequence[str] | None = None
    primary_port: str | None = None
    scheme: Scheme | None = None
    mounts: Sequence[str] | None = None
    public: bool | None = None

    def build_template(self) -> Json:
        """The lists that were said."""
        template: Json = {
            "command": list(self.command or ()),
            "args": list(self.args or ()),
            "envs": [parse_env(text) for text in self.envs or ()],
            "ports": [parse_port(text) for text in self.ports or ()],
        }
        return {name: value for name, value in template.items() if value}

    def build_access(self) -> Json:
        scheme = self.scheme.value if self.scheme else None
        return said(primaryPort=self.primary_port, scheme=scheme, public=self.public)


def build_create(
    name: str, spec: str | None, stock: str | None, options: UnitOptions, file: Json, operation_id: str
) -> Json:
    """The request for a unit or a function: what the file says, and over it what the options say."""
    request = build_named(file, name, operation_id)
    if spec:
        request["specName"] = spec
    if stock:
        request["stockName"] = stock
    request = merge_options(request, options)
    require_said(request, {"specName": "--spec", "image": "--image"})
    return request


def build_update(current: UnitView | FunctionView | None, options: UnitOptions, file: Json) -> Json:
    """The change. The API replaces a template as a whole, so what was not said is taken from the unit as it is."""
    change = dict(file)
    if current and options.build_template() and "template" not in change:
        change["template"] = current.get("template") or {}
    if current and options.build_access() and "access" not in change:
        change["access"] = current.get("access") or {}
    return merge_options(change, options)


def merge_options(request: Json, options: UnitOptions) -> Json:
    merged = dict(request)
    if options.image:
        merged["image"] = options.image
    if template := options.build_template():
        merged["template"] = {**get_block(request, "template"), **template}
    if access := options.build_access():
        merged["access"] = {**get_block(request, "access"), **access}
    if options.mounts:
        merged["storageMounts"] = [parse_mount(text) for text in options.mounts]
    return merged


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
