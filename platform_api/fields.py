"""Fields of requests and of answers that several resources have."""

from typing import Annotated

from pydantic import Field

from gpu_platform.domain import names

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
