"""The Python SDK of the REST API: typed sync and async clients, with retries, waits and watches.

with Client() as client:
    client.units.create({"name": "train", "specName": "g1.1", "image": "example/train"})
    print(client.units.wait("train").access_url)
"""

from gpu_platform.client.calls import Answer, Retries
from gpu_platform.client.client import AsyncClient, AsyncRawClient, Client, RawClient
from gpu_platform.client.errors import (
    ApiError,
    ConflictError,
    Detail,
    ForbiddenError,
    ModifiedConcurrentlyError,
    NotConfiguredError,
    NotFoundError,
    PlatformError,
    TooManyRequestsError,
    UnauthenticatedError,
    UnexpectedAnswerError,
    UnreachableError,
    UnsendableError,
    WaitError,
)
from gpu_platform.client.events import ServerEvent

__all__ = [
    "Answer",
    "ApiError",
    "AsyncClient",
    "AsyncRawClient",
    "Client",
    "ConflictError",
    "Detail",
    "ForbiddenError",
    "ModifiedConcurrentlyError",
    "NotConfiguredError",
    "NotFoundError",
    "PlatformError",
    "RawClient",
    "Retries",
    "ServerEvent",
    "TooManyRequestsError",
    "UnauthenticatedError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "UnsendableError",
    "WaitError",
]
