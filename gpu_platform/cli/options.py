"""Options that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

Url = Annotated[
    str | None, typer.Option("--url", help="The platform's address, instead of GPU_PLATFORM_URL.", metavar="URL")
]

AsJson = Annotated[bool, typer.Option("--json", help="Print the API's answer, for machines.")]

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


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Makes every field of a parameter that is a dataclass an option of the command, in its place."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        each.name: each.annotation for each in signature.parameters.values() if is_dataclass(each.annotation)
    }

    @wraps(command)
    def run(**values: Any) -> None:
        made = {name: build(**_take(values, build)) for name, build in groups.items()}
        command(**values, **made)

    parameters = [option for each in signature.parameters.values() for option in _list_options(each)]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _list_options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    if not is_dataclass(parameter.annotation):
        return [parameter]
    hints = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(each.name, parameter.kind, default=each.default, annotation=hints[each.name])
        for each in fields(parameter.annotation)
    ]


def _take(values: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Takes the values of the fields out."""
    return {each.name: values.pop(each.name) for each in fields(kind)}
