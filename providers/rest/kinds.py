"""Units, storages and functions as a tenant's program declares them: inputs are checked and compared. Pure: nothing is
asked of the platform."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pulumi.output import Unknown
from pydantic import Field, ValidationError

from gpu_platform.client import RawClient
from gpu_platform.client.method import BlockingRaw
from gpu_platform.client.resources import Functions, Storages, Units
from gpu_platform.domain.crds import build_schema, fill_defaults
from gpu_platform.domain.functions import (
    LONGEST_CALL_SECONDS,
    CallTimeout,
    FunctionChange,
    FunctionRequest,
    normalise_function,
)
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.storages import StorageChange, StorageRequest, normalise_storage
from gpu_platform.domain.units import (
    Access,
    Serverless,
    StorageMount,
    Template,
    UnitRequest,
    normalise_access,
    normalise_request,
)
from gpu_platform.domain.value import RequestError, Value, sentence_of

A = TypeVar("A", bound=Value)

Objects = Units[BlockingRaw] | Storages[BlockingRaw] | Functions[BlockingRaw]

LONGEST_WAIT_SECONDS = 86_400
ReadyWithin = Annotated[int, Field(ge=0, le=LONGEST_WAIT_SECONDS)]
Owner = Annotated[str | None, Field(min_length=1)]
"""The resource that may take over what an interrupted try of it has left: organization and URN."""

KEPT = ("owner", "readyWithinSeconds")
"""Inputs that are about Pulumi: the platform does not show them."""


class UnitArgs(UnitRequest):
    """All inputs of the resource."""

    running: bool = True
    ready_within_seconds: ReadyWithin = 300
    owner: Owner = None


class StorageArgs(StorageRequest):
    """All inputs of the resource."""

    ready_within_seconds: ReadyWithin = 300
    owner: Owner = None


class FunctionArgs(FunctionRequest):
    """All inputs of the resource."""

    timeout_seconds: CallTimeout = LONGEST_CALL_SECONDS
    """The meaning of none is written out: a PUT could not remove one."""

    ready_within_seconds: ReadyWithin = 300
    owner: Owner = None


@dataclass(frozen=True)
class Failure:
    field: str
    reason: str


@dataclass(frozen=True)
class Difference:
    changed: tuple[str, ...]
    replacing: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """How a person is told about it."""

    what: str
    """Such as `unit`."""

    make: str
    """Such as `rent`."""

    makes_anew: str
    undo: str
    """What one does with it in the end, such as `give that one back`."""

    undone: str
    removal: str
    """The command that does so."""


def _is_never(_field: str, _news: Json) -> bool:
    return False


def _as_it_is(inputs: Json) -> Json:
    return inputs


def _is_ready(_inputs: Json) -> str:
    return "Ready"


@dataclass(frozen=True)
class Kind(Generic[A]):
    """One kind of resource: where the API has it, what its inputs are, and what a change of them does."""

    words: Words
    objects_of: Callable[[RawClient], Objects]
    args: type[A]
    """All inputs of the resource."""

    request: type[Value]
    """Those of them that a POST has."""

    normalise: Callable[[A], Value]
    """RequestError for what cannot be."""

    fixed: tuple[str, ...]
    """A change of these needs a new object."""

    put_fields: tuple[str, ...]
    shown: tuple[str, ...]
    """What the platform alone can say."""

    updated: tuple[str, ...] = ()
    """Further fields whose change is an update, by other requests than a PUT."""

    forgotten: tuple[str, ...] = ()
    """What may be left out later without making a difference."""

    kept: tuple[str, ...] = KEPT
    """Inputs that the platform does not show."""

    is_replacing: Callable[[str, Json], bool] = _is_never
    """Whether a change of another field needs a new object, too; with the new inputs."""

    fill_in: Callable[[Json], Json] = _as_it_is
    """More defaults, around what is unknown."""

    read_live: Callable[[Json], Json] | None = None
    """The live inputs in the API's view, where they are not those of the same names."""

    goal_of: Callable[[Json], str] = _is_ready
    """The phase that an `up` waits for, from the inputs."""

    @property
    def compared(self) -> tuple[str, ...]:
        """What makes a difference. Of the rest, all is about Pulumi."""
        return (*self.fixed, *self.put_fields, *self.updated)

    def check(self, news: Json) -> tuple[Json, tuple[Failure, ...]]:
        """The inputs with all defaults written out, as the API would accept them; or what the API would refuse, in its
        words.

        While a part is unknown, as in the preview of a program that has yet to make it, nothing is refused.
        """
        inputs = as_json(news)
        if contains_unknown(inputs):
            # A preview shows no more changes than there may be, and a plan that was saved from it still fits once
            # everything is known.
            return self.fill_in(fill_defaults(build_schema(self.args), inputs)), ()
        try:
            args = self.args.model_validate_json(
                json.dumps(inputs), strict=True, extra="forbid", by_alias=True, by_name=False
            )
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)
            return inputs, tuple(Failure(_place(each["loc"]), sentence_of(each)) for each in found)
        try:
            return self.normalise(args).to_json(), ()
        except RequestError as error:
            return inputs, (Failure(error.field, error.message),)

    def build_request(self, inputs: Json, operation_id: str) -> Json:
        """The body of a POST."""
        fields = (field.alias for field in self.request.model_fields.values())
        return {"operationID": operation_id, **{field: inputs[field] for field in fields if field in inputs}}

    def build_change(self, inputs: Json) -> Json:
        """The body of a PUT. A field without a value is left out, not sent as null."""
        return {field: inputs[field] for field in self.put_fields if inputs.get(field) is not None}

    def build_live(self, view: Json) -> Json:
        """The inputs of the live object, from the API's view of it. Through our models, so that a field of a newer API
        makes no difference."""
        if self.read_live is not None:
            return self.read_live(view)
        live = self.args.model_validate(view).to_json()
        return {field: value for field, value in live.items() if field not in self.kept}

    def find_difference(self, olds: Json, news: Json) -> Difference:
        """What an update would change. `olds` may be what a refresh has found."""
        changed = [field for field in self.compared if not is_same(olds.get(field), news.get(field))]
        changed = [field for field in changed if field not in self.forgotten or news.get(field) is not None]
        replacing = [field for field in changed if field in self.fixed or self.is_replacing(field, news)]
        return Difference(tuple(changed), tuple(replacing))

    def build_outputs(self, view: Json, inputs: Json) -> Json:
        """The resource's outputs: the live object, and of the inputs what only Pulumi knows."""
        ours = {key: value for key, value in inputs.items() if key in self.kept}
        return {**ours, **self.build_live(view), **{key: view[key] for key in self.shown if key in view}}

    def build_inputs(self, outputs: Json) -> Json:
        """The inputs that would have these outputs."""
        return {key: value for key, value in outputs.items() if key not in self.shown}


def is_same(old: Any, new: Any) -> bool:
    return not contains_unknown(new) and as_json(old) == as_json(new)


def contains_unknown(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(contains_unknown, value.values()))
    return any(map(contains_unknown, value)) if isinstance(value, list) else isinstance(value, Unknown)


def as_json(value: Any) -> Any:
    """Pulumi keeps every number as a float; and what begins with two underscores is its own."""
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _place(parts: tuple[int | str, ...]) -> str:
    return "".join(_steps(parts)).lstrip(".")


def _steps(parts: tuple[int | str, ...]) -> Iterator[str]:
    for part in parts:
        yield f"[{part}]" if isinstance(part, int) else f".{part}"


def _is_replacing_unit(field: str, news: Json) -> bool:
    """
    | field                              | change                                                         |
    | ---------------------------------- | -------------------------------------------------------------- |
    | name, specName                     | replace                                                        |
    | stockName, another one             | replace                                                        |
    | stockName, left out                | none: the unit has long taken its place                        |
    | template, empty while it was not   | replace: to a PUT, an empty one is none                        |
    | serverless, left out               | replace: a PUT cannot remove it                                |
    | image, template, access,           | update, by PUT                                                 |
    | serverless, storageMounts          |                                                                |
    | running                            | update, by stop or start                                       |
    | readyWithinSeconds, owner          | none: they are about Pulumi, not about the unit                |
    """
    if field == "template":
        return _is_empty(news.get(field))
    return field == "serverless" and news.get(field) is None


def _is_empty(template: Any) -> bool:
    return not contains_unknown(template) and (template is None or Template.model_validate(template) == Template())


def _read_live_unit(view: Json) -> Json:
    access = {"access": Access.model_validate(view["access"]).to_json()} if view.get("access") else {}
    serverless = view.get("serverless")
    return {
        "name": view["name"],
        "specName": view["specName"],
        "image": view.get("image"),
        "template": Template.model_validate(view["template"]).to_json(),
        **access,
        **({"serverless": Serverless.model_validate(serverless).to_json()} if serverless else {}),
        "storageMounts": [StorageMount.model_validate(mount).to_json() for mount in view.get("storageMounts") or ()],
        "running": view["running"],
    }


def _fill_in_access(inputs: Json) -> Json:
    template, access = inputs["template"], inputs.get("access")
    ports = template["ports"] if isinstance(template, dict) else template
    if contains_unknown([ports, access]):
        return inputs
    try:
        chosen = normalise_access(
            Template.model_validate({"ports": ports}), Access.model_validate(access) if access else None
        )
    except (ValidationError, RequestError):
        # Refused once the rest is known.
        return inputs
    return {**inputs, "access": chosen.to_json()} if chosen else inputs


def _normalise_unit(args: UnitArgs) -> UnitRequest:
    if args.ssh is not None:
        raise RequestError("ssh", "cannot be asked for here, where the state would keep its token; send it by PUT")
    return normalise_request(args)


def _list_fields(model: type[Value]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


UNITS = Kind[UnitArgs](
    words=Words(
        what="unit",
        make="rent",
        makes_anew="rents a new one",
        undo="give that one back",
        undone="given back",
        removal="gpu-platform units delete",
    ),
    objects_of=lambda client: client.units,
    args=UnitArgs,
    request=UnitRequest,
    normalise=_normalise_unit,
    fixed=("name", "specName", "stockName"),
    put_fields=("image", "template", "access", "serverless", "storageMounts"),
    shown=(
        *("namespace", "memory", "gpu", "phase", "accessURL", "publicURL"),
        *("stack", "operationID", "sourceStockName", "nodeName"),
    ),
    updated=("running",),
    forgotten=("stockName",),
    kept=(*KEPT, "stockName"),
    is_replacing=_is_replacing_unit,
    fill_in=_fill_in_access,
    read_live=_read_live_unit,
    goal_of=lambda inputs: "Ready" if inputs["running"] else "Stopped",
)

STORAGES = Kind[StorageArgs](
    words=Words(
        what="storage",
        make="make",
        makes_anew="makes a new one",
        undo="delete that one",
        undone="deleted",
        removal="gpu-platform storages delete",
    ),
    objects_of=lambda client: client.storages,
    args=StorageArgs,
    request=StorageRequest,
    normalise=normalise_storage,
    fixed=("name", "storageClassName", "prepare"),
    put_fields=_list_fields(StorageChange),
    shown=("namespace", "phase", "capacity", "claimName", "mountedBy", "stack", "operationID"),
)
"""
| field                              | change                                                         |
| ---------------------------------- | -------------------------------------------------------------- |
| name, storageClassName, prepare    | replace, and the data with it                                  |
| size                               | update, by PUT; a smaller one is refused: a typing mistake     |
|                                    | must not cost a tenant the data                                |
| accessor, retain                   | update, by PUT                                                 |
| readyWithinSeconds, owner          | none: they are about Pulumi, not about the storage             |
"""

FUNCTIONS = Kind[FunctionArgs](
    words=Words(
        what="function",
        make="declare",
        makes_anew="declares it anew",
        undo="take that one away",
        undone="taken away",
        removal="gpu-platform functions delete",
    ),
    objects_of=lambda client: client.functions,
    args=FunctionArgs,
    request=FunctionRequest,
    normalise=normalise_function,
    fixed=("name", "specName"),
    put_fields=_list_fields(FunctionChange),
    shown=("namespace", "phase", "stack", "operationID"),
)
"""
| field                              | change                                                         |
| ---------------------------------- | -------------------------------------------------------------- |
| name, specName                     | replace                                                        |
| readyWithinSeconds, owner          | none: they are about Pulumi, not about the function            |
| any other                          | update, by PUT                                                 |
"""
