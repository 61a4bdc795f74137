"""Fields that several requests and answers of the REST API share, with the checks that need no look-up."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from gpu_platform.domain import names
from gpu_platform.domain.quantities import parse_amount
from gpu_platform.domain.stock import CatalogueName, Memory

OperationIDText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]([ -~]*[!-~])?$")]

OperationID = Annotated[
    OperationIDText,
    Field(
        alias="operationID",
        description="Chosen by the caller, new for each new wish: sent again, the request is answered, not repeated.",
    ),
]

# The pattern only describes: whatever normalises the request refuses in better words.
DnsLabel = Annotated[
    str,
    Field(max_length=names.UNIT_NAME_LIMIT, json_schema_extra={"pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"}),
]

StackName = Annotated[str | None, Field(description="The Pulumi stack that keeps it, recorded yet or not.")]

StackRecorded = Annotated[
    bool | None, Field(description="Only in the answer to wait=recorded: whether it came to that in time.")
]

_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
NAME_LIMIT = 253


def is_object_name(text: str) -> bool:
    """Whether Kubernetes could have an object of this name. What is none must not become part of a path there."""
    return len(text) <= NAME_LIMIT and re.fullmatch(_SUBDOMAIN, text) is not None


def _check_spec_name(text: str) -> str:
    if not is_object_name(text):
        raise ValueError("should be lower-case letters and digits, with hyphens or single dots between them")
    return text


def _check_memory(text: str) -> str:
    parse_amount(text)
    return text


def _check_namespace(text: str) -> str:
    if not names.is_stock_namespace(text):
        raise ValueError(f"should be {names.STOCK_NAMESPACE}, or be left out: stock lives there")
    return text


NewSpecName = Annotated[
    CatalogueName, AfterValidator(_check_spec_name), Field(json_schema_extra={"pattern": f"^{_SUBDOMAIN}$"})
]

Amount = Annotated[Memory, AfterValidator(_check_memory)]

StockNamespace = Annotated[
    str, AfterValidator(_check_namespace), Field(json_schema_extra={"enum": [names.STOCK_NAMESPACE]})
]
