"""What a controller needs of the API server to act: the guarded writes, as a port."""

from typing import Any, Literal, Protocol

Json = dict[str, Any]


class Writer(Protocol):
    """Every call raises `NotLeaderError` instead of writing once this process no longer leads."""

    async def create(self, path: str, body: Json, params: dict[str, str] | None = None) -> Json: ...

    async def replace(self, path: str, body: Json, params: dict[str, str] | None = None) -> Json: ...

    async def patch(self, path: str, body: Json) -> Json: ...

    async def delete(self, path: str, body: Json | None = None) -> Json: ...


class ReadingWriter(Writer, Protocol):
    """The guarded writes, and a look at the API server itself."""

    async def get(self, path: str, params: dict[str, str] | None = None) -> Json: ...


class Recorder(Protocol):
    """Kubernetes Events. Never fails its caller."""

    async def record(self, regarding: Json, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None: ...
