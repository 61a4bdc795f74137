"""Which kinds the API server has, where they live in its paths, and whether they belong to a namespace."""

from typing import Any

from gpu_platform.kube import KubeClient, NotFoundError, ResourcePath
from providers.kubernetes.type_tokens import ObjectType

Json = dict[str, Any]

CALL_SECONDS = 30.0
"""For one request: a busy development machine answers late, and a person waits."""


def read_kinds(api_version: str, resources: Json) -> dict[str, ResourcePath]:
    """The kinds of an `APIResourceList`. A kind's subresources (`deployments/scale`) are no kinds."""
    return {
        each["kind"]: ResourcePath(api_version, each["name"], bool(each["namespaced"]))
        for each in resources.get("resources") or []
        if "/" not in each["name"]
    }


class Discovery:
    """Asks once per group and version, and again for a kind that was not there: its definition may have come since."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[str, dict[str, ResourcePath]] = {}

    async def find(self, wanted: ObjectType) -> ResourcePath | None:
        known = self._known.get(wanted.api_version, {}).get(wanted.kind)
        return known or await self.find_again(wanted)

    async def find_again(self, wanted: ObjectType) -> ResourcePath | None:
        prefix = "/apis" if wanted.group else "/api"
        try:
            answer = await self._client.get(f"{prefix}/{wanted.api_version}", timeout=CALL_SECONDS)
        except NotFoundError:
            self._known.pop(wanted.api_version, None)
            return None
        self._known[wanted.api_version] = read_kinds(wanted.api_version, answer)
        return self._known[wanted.api_version].get(wanted.kind)
