"""Functions: what a program may wish of them, and what of a change needs another one."""

from gpu_platform.domain.functions import (
    LONGEST_CALL_SECONDS,
    CallTimeout,
    FunctionChange,
    FunctionRequest,
    normalise_function,
)
from gpu_platform.domain.json_text import Json
from providers.rest.forms import Form, Owner, ReadyWithin, Words

PUT_FIELDS = tuple(field.alias or name for name, field in FunctionChange.model_fields.items())
KEPT = ("owner", "readyWithinSeconds")


class FunctionWish(FunctionRequest):
    """All inputs of the resource."""

    timeout_seconds: CallTimeout = LONGEST_CALL_SECONDS
    """What none means is said: a PUT could not take one away."""

    ready_within_seconds: ReadyWithin = 300
    owner: Owner = None


def _is_replacing(field: str, _news: Json) -> bool:
    """
    | field                              | change                                                         |
    | ---------------------------------- | -------------------------------------------------------------- |
    | name, specName                     | replace                                                        |
    | readyWithinSeconds, owner          | none: they are about Pulumi, not about the function            |
    | any other                          | update, by PUT                                                 |
    """
    return field in ("name", "specName")


def _build_live(view: Json) -> Json:
    live = FunctionWish.model_validate(view).to_json()
    return {field: value for field, value in live.items() if field not in KEPT}


def _as_it_is(inputs: Json) -> Json:
    return inputs


def _goal_of(_inputs: Json) -> str:
    return "Ready"


FUNCTIONS = Form[FunctionWish](
    words=Words(
        what="function",
        make="declare",
        makes_anew="declares it anew",
        undo="take that one away",
        undone="taken away",
        removal="gpu-platform functions delete",
    ),
    collection="/serverless/functions",
    absence="function_not_found",
    wish=FunctionWish,
    request=FunctionRequest,
    normalise=normalise_function,
    fill_in=_as_it_is,
    build_live=_build_live,
    put_fields=PUT_FIELDS,
    compared=("name", "specName", *PUT_FIELDS),
    forgotten=(),
    is_replacing=_is_replacing,
    kept=KEPT,
    shown=("namespace", "phase", "stack", "operationID"),
    goal_of=_goal_of,
)
