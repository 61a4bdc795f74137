"""Options that several commands share."""

from typing import Annotated

import typer

Url = Annotated[
    str | None, typer.Option("--url", help="The platform's address, instead of GPU_PLATFORM_URL.", metavar="URL")
]

AsJson = Annotated[bool, typer.Option("--json", help="Print the API's answer, for machines.")]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until it is so; exit with 1 when it fails.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds that --wait waits at most.")]

OperationId = Annotated[
    str | None,
    typer.Option(
        "--operation-id",
        help="Names this request, so that repeating it does nothing twice. By default a random one.",
        metavar="ID",
    ),
]

Spec = Annotated[str, typer.Option("--spec", help="Entry of the catalogue; see `gpu-platform specs list`.")]

SpecOrFile = Annotated[
    str | None, typer.Option("--spec", help="Entry of the catalogue; see `gpu-platform specs list`.")
]

OnlySpec = Annotated[str | None, typer.Option("--spec", help="Only those of this spec.")]
OnlyPhase = Annotated[str | None, typer.Option("--phase", help="Only those in this phase, such as Ready.")]
Memory = Annotated[str | None, typer.Option(help="Memory of a unit, such as 16Gi, for a spec that is new.")]
Gpu = Annotated[int | None, typer.Option(min=0, help="GPUs of a unit, for a spec that is new.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")]
Tail = Annotated[int | None, typer.Option(min=0, help="Only so many of the last lines.")]
Previous = Annotated[bool, typer.Option("--previous", help="Of the container before the last restart.")]
Timestamps = Annotated[bool, typer.Option("--timestamps", help="With the time of every line.")]


def _refuse_empty(text: str) -> str:
    """An unset variable of a script would otherwise ask for something else: the list instead of one of it."""
    if not text.strip():
        raise typer.BadParameter("is empty")
    return text


def _refuse_empties(texts: list[str]) -> list[str]:
    return [_refuse_empty(text) for text in texts]


Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.", callback=_refuse_empty)]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Their names.", callback=_refuse_empties)]
