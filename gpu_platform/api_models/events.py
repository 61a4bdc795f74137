"""Events of a tenant's objects as the REST API shows them."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from gpu_platform.domain.value import Value


class EventView(Value):
    """Something that happened to an object of the tenant's, or to what belongs to it."""

    type: str
    reason: str
    message: str
    object: Annotated[str, Field(description="What it happened to.")]
    count: int
    first_seen: datetime | None = None
    last_seen: datetime | None = None
