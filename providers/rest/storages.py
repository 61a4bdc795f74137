"""Storages: what a program may wish of them, and what of a change needs another one."""

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.storages import StorageChange, StorageRequest, normalise_storage
from providers.rest.forms import Form, Owner, ReadyWithin, Words

PUT_FIELDS = tuple(field.alias or name for name, field in StorageChange.model_fields.items())
FIXED = ("name", "storageClassName", "prepare")
KEPT = ("owner", "readyWithinSeconds")


class StorageWish(StorageRequest):
    """All inputs of the resource."""

    ready_within_seconds: ReadyWithin = 300
    owner: Owner = None


def _is_replacing(field: str, _news: Json) -> bool:
    """
    | field                              | change                                                         |
    | ---------------------------------- | -------------------------------------------------------------- |
    | name, storageClassName, prepare    | replace, and the data with it                                  |
    | size                               | update, by PUT; a smaller one is refused: a typing mistake     |
    |                                    | must not cost anybody the data                                 |
    | accessor, retain                   | update, by PUT                                                 |
    | readyWithinSeconds, owner          | none: they are about Pulumi, not about the storage             |
    """
    return field in FIXED


def _build_live(view: Json) -> Json:
    live = StorageWish.model_validate(view).to_json()
    return {field: value for field, value in live.items() if field not in KEPT}


def _as_it_is(inputs: Json) -> Json:
    return inputs


def _goal_of(_inputs: Json) -> str:
    return "Ready"


STORAGES = Form[StorageWish](
    words=Words(
        what="storage",
        make="make",
        makes_anew="makes a new one",
        undo="delete that one",
        undone="deleted",
        removal="gpu-platform storages delete",
    ),
    collection="/gpu-storages",
    absence="gpustorage_not_found",
    wish=StorageWish,
    request=StorageRequest,
    normalise=normalise_storage,
    fill_in=_as_it_is,
    build_live=_build_live,
    put_fields=PUT_FIELDS,
    compared=(*FIXED, *PUT_FIELDS),
    forgotten=(),
    is_replacing=_is_replacing,
    kept=KEPT,
    shown=("namespace", "phase", "capacity", "claimName", "mountedBy", "stack", "operationID"),
    goal_of=_goal_of,
)
