"""`--file`: a request that is written down, which options are laid over."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpu_platform.cli.json_input import parse_json
from gpu_platform.cli.views import Json

File = Annotated[
    str | None,
    typer.Option("--file", help="The request as JSON, from a file or from - (stdin); options win.", metavar="FILE"),
]


def read_file(file: str | None) -> Json:
    """The JSON object of `--file`, empty without one."""
    if file is None:
        return {}
    try:
        content = parse_json(sys.stdin.read() if file == "-" else Path(file).read_text())
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint="--file") from None
    except ValueError as error:
        raise typer.BadParameter(f"{file} is not JSON: {error}", param_hint="--file") from None
    if not isinstance(content, dict):
        raise typer.BadParameter(f"{file} should hold one JSON object", param_hint="--file")
    return content


def get_block(request: Json, name: str) -> Json:
    """A part of the request that options are laid over; empty where the file has none."""
    block = request.get(name)
    if block is not None and not isinstance(block, dict):
        raise typer.BadParameter(f"its {name!r} should be a JSON object", param_hint="--file")
    return block or {}


def build_named(content: Json, name: str, operation_id: str) -> Json:
    """What the file says, for the object of this name."""
    if content.get("name", name) != name:
        raise typer.BadParameter(f"it names {content['name']!r}, not {name!r}", param_hint="--file")
    return {**content, "operationID": operation_id, "name": name}


def require_said(request: Json, option_of: dict[str, str]) -> None:
    """The fields that the API does not fill in, and the option of each."""
    for field, option in option_of.items():
        if not request.get(field):
            raise typer.BadParameter("is missing", param_hint=option)
