"""The port of a Kubernetes client, and the small requests that every process makes through it."""

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from gpu_platform.domain.json_text import Json
from gpu_platform.kube.errors import ConflictError, NotFoundError
from gpu_platform.kube.paths import ResourcePath


class ObjectClient(Protocol):
    """Requests for objects of Kubernetes: `KubeClient`, or one with a rule of its own in front of it (`GuardedClient`,
    which raises NotLeaderError instead of writing; the API's `BoundedClient`, which gives up after seconds).
    """

    async def get(self, path: str, params: dict[str, str] | None = None) -> Json: ...

    async def create(self, path: str, body: Json, params: dict[str, str] | None = None) -> Json: ...

    async def replace(self, path: str, body: Json, params: dict[str, str] | None = None) -> Json: ...

    async def patch(self, path: str, body: Json) -> Json: ...

    async def delete(self, path: str, body: Json | None = None) -> Json: ...


async def find(client: ObjectClient, path: ResourcePath, name: str, namespace: str | None = None) -> Json | None:
    """The object, if there is one."""
    try:
        return await client.get(path.item(name, namespace))
    except NotFoundError:
        return None


async def list_pages(
    client: ObjectClient, path: str, params: Mapping[str, str], size: int
) -> AsyncGenerator[Json, None]:
    """Every page of a list, as the API server answers them. Without a resourceVersion they are consistent."""
    asked = {**params, "limit": str(size)}
    while True:
        page = await client.get(path, asked)
        yield page
        if not (token := page["metadata"].get("continue")):
            return
        asked = {**asked, "continue": token}


async def delete_that(client: ObjectClient, path: ResourcePath, metadata: Mapping[str, str]) -> None:
    """That very object. It stays, on its way out, until its children are gone. NotFoundError: it is gone;
    ConflictError: another one has its name."""
    body = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Foreground"}
    await client.delete(path.item(metadata["name"], metadata.get("namespace")), body)


def as_seen(item: Json) -> Json:
    """What guards a write: this very object, and nobody has written it since."""
    return {"uid": item["metadata"]["uid"], "resourceVersion": item["metadata"]["resourceVersion"]}


async def swap_metadata(client: ObjectClient, path: ResourcePath, item: Json, metadata: Json) -> Json | None:
    """Merges this into the metadata of the object as it was seen; None when it was modified or deleted concurrently.

    The swap is on the resourceVersion: of any number of writers of one object exactly one succeeds.
    """
    try:
        return await client.patch(path.of(item), {"metadata": {**as_seen(item), **metadata}})
    except (ConflictError, NotFoundError):
        return None
