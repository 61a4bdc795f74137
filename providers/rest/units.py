"""Units: what a program may wish of them, and what of a change needs another one."""

from typing import Any

from pydantic import ValidationError

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.units import (
    Access,
    RequestError,
    Serverless,
    StorageMount,
    Template,
    UnitRequest,
    normalise_access,
    normalise_request,
)
from providers.rest.forms import Form, Owner, ReadyWithin, Words, contains_unknown

PUT_FIELDS = ("image", "template", "access", "serverless", "storageMounts")


class UnitWish(UnitRequest):
    """All inputs of the resource."""

    running: bool = True
    ready_within_seconds: ReadyWithin = 300
    owner: Owner = None


def _is_replacing(field: str, news: Json) -> bool:
    """
    | field                              | change                                                         |
    | ---------------------------------- | -------------------------------------------------------------- |
    | name, specName                     | replace                                                        |
    | stockName, another one             | replace                                                        |
    | stockName, no longer said          | none: the unit has long taken its place                        |
    | template, empty while it was not   | replace: to a PUT, an empty one is none                        |
    | serverless, no longer said         | replace: a PUT cannot take it away                             |
    | image, template, access,           | update, by PUT                                                 |
    | serverless, storageMounts          |                                                                |
    | running                            | update, by stop or start                                       |
    | readyWithinSeconds, owner          | none: they are about Pulumi, not about the unit                |
    """
    if field == "template":
        return _is_empty(news.get(field))
    return field in ("name", "specName", "stockName") or (field == "serverless" and news.get(field) is None)


def _is_empty(template: Any) -> bool:
    return not contains_unknown(template) and (template is None or Template.model_validate(template) == Template())


def _build_live(view: Json) -> Json:
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


def _fill_in(inputs: Json) -> Json:
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


def _normalise(wish: UnitWish) -> UnitRequest:
    if wish.ssh is not None:
        raise RequestError("ssh", "cannot be asked for here, where the state would keep its token; send it by PUT")
    return normalise_request(wish)


def _goal_of(inputs: Json) -> str:
    return "Ready" if inputs["running"] else "Stopped"


UNITS = Form[UnitWish](
    words=Words(
        what="unit",
        make="rent",
        makes_anew="rents a new one",
        undo="give that one back",
        undone="given back",
        removal="gpu-platform units delete",
    ),
    collection="/gpu-units",
    absence="gpuunit_not_found",
    wish=UnitWish,
    request=UnitRequest,
    normalise=_normalise,
    fill_in=_fill_in,
    build_live=_build_live,
    put_fields=PUT_FIELDS,
    compared=("name", "specName", "stockName", *PUT_FIELDS, "running"),
    forgotten=("stockName",),
    is_replacing=_is_replacing,
    kept=("owner", "readyWithinSeconds", "stockName"),
    shown=(
        *("namespace", "memory", "gpu", "phase", "accessURL", "publicURL"),
        *("stack", "operationID", "sourceStockName", "nodeName"),
    ),
    goal_of=_goal_of,
)
