"""Types of fields that several components take: names, amounts and images, each with its check."""

import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from gpu_platform.domain.quantities import QuantityError, parse_amount, parse_quantity
from gpu_platform.domain.specs import Toleration
from gpu_platform.settings import Settings

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]


IMAGE = re.compile(r"[a-z0-9][a-z0-9._:/-]*(:(?P<tag>\w[\w.-]{0,127})|@sha256:[0-9a-f]{64})")


def _check_amount(text: str) -> str:
    try:
        parse_amount(text)
    except QuantityError as error:
        raise ValueError(str(error)) from error
    return text


def _check_ceiling(text: str) -> str:
    try:
        is_negative = parse_quantity(text) < 0
    except QuantityError as error:
        raise ValueError(str(error)) from error
    if is_negative:
        raise ValueError(f"{text!r} must not be less than zero")
    return text


def _check_image(text: str) -> str:
    match = IMAGE.fullmatch(text)
    if match is None or match["tag"] == "latest":
        raise ValueError(
            f"{text!r} does not name one version; write repository:tag (not latest) or repository@sha256:…"
        )
    return text


Amount = Annotated[str, AfterValidator(_check_amount)]
"""More than nothing."""


Ceiling = Annotated[str, AfterValidator(_check_ceiling)]
"""Nothing at all is an answer too."""


Image = Annotated[str, AfterValidator(_check_image)]


class Amounts(Settings):
    cpu: Amount
    memory: Amount


class StrictToleration(Toleration):
    model_config = ConfigDict(extra="forbid")
