"""The GPU platform. `Client` and `AsyncClient` are its Python SDK; each is imported when it is asked for, because the
servers need no HTTP client."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_platform.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpu_platform import client

    return getattr(client, name)
