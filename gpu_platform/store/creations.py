"""Creating an object for a request, once: whoever tries again finds what the first try made."""

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import marks_of
from gpu_platform.kube.errors import AlreadyExistsError, ConflictError, KubeError
from gpu_platform.kube.paths import ResourcePath
from gpu_platform.kube.requests import ObjectClient, find

CREATE_TRIES = 5


class NameTakenError(Exception):
    """An object of this name exists, and another operation made it."""


async def create_or_adopt(client: ObjectClient, path: ResourcePath, body: Json) -> Json:
    """Create the object, or take the one that an earlier try of the same request created."""
    metadata = body["metadata"]
    for _ in range(CREATE_TRIES):
        try:
            return await client.create(path.collection(metadata["namespace"]), body)
        except KubeError as error:
            is_taken = isinstance(error, AlreadyExistsError)
            # The API server looks at the quota first, which hides that the name is taken.
            if not is_taken and not error.is_about_quota:
                raise
            existing = await find(client, path, metadata["name"], metadata["namespace"])
            if existing is None and not is_taken:
                raise
        if existing is None:
            # It went between the two looks.
            continue
        if marks_of(existing) != marks_of(body) or "deletionTimestamp" in existing["metadata"]:
            raise NameTakenError(metadata["name"])
        return existing
    raise ConflictError(409, "Conflict", f"{path.plural}: {metadata['name']} is made and deleted again and again")
