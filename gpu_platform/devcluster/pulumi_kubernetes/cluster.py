"""Requests for objects of any kind to one API server, and which kinds it has: where they live in its paths, and
whether they belong to a namespace. It decides nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

from gpu_platform.devcluster.pulumi_kubernetes.inputs import ObjectType, build_object_id
from gpu_platform.devcluster.pulumi_kubernetes.state import build_body
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import (
    ConflictError,
    KubeClient,
    KubeError,
    NotFoundError,
    PatchType,
    ResourcePath,
    UnreachableError,
)
from gpu_platform.kube.paths import PODS
from gpu_platform.pulumi_protocol.resource import ResourceFailedError, describe

CALL_SECONDS = 30.0
"""For one request: a busy development machine answers late, and a person waits."""

KIND_SECONDS = 20.0
"""How long a create waits for a kind that is not served: its definition may be made at the same time."""

POLL_SECONDS = 0.2
UNSERVED = "could not find the requested resource"

UNSERVED_SECONDS = 5.0
"""A new kind is announced a moment before its paths answer, and later still by a second API server."""


def read_kinds(api_version: str, resources: Json) -> dict[str, ResourcePath]:
    """The kinds of an `APIResourceList`. A kind's subresources (`deployments/scale`) are no kinds."""
    return {
        each["kind"]: ResourcePath(api_version, each["name"], bool(each["namespaced"]))
        for each in resources.get("resources") or []
        if "/" not in each["name"]
    }


@dataclass(frozen=True)
class Place:
    """Where one object is, or would be."""

    kind: ObjectType
    path: ResourcePath
    namespace: str | None
    name: str

    @property
    def id(self) -> str:
        return build_object_id(self.namespace, self.name)

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.kind.kind} {self.id}"

    @property
    def url(self) -> str:
        # Roles may have colons in their names, which a path has to quote.
        return f"{self.path.collection(self.namespace)}/{quote(self.name, safe='')}"


class Cluster:
    """Every method raises ResourceFailedError with a readable line, unless it says otherwise."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[str, dict[str, ResourcePath]] = {}

    @property
    def server(self) -> str:
        return self._client.server

    async def close(self) -> None:
        await self._client.close()

    async def find_kind(self, kind: ObjectType) -> ResourcePath | None:
        """Asks once per group and version, and again for a kind that was not there: its definition may have come."""
        return self._known.get(kind.api_version, {}).get(kind.kind) or await self._discover(kind)

    async def get_kind(self, kind: ObjectType) -> ResourcePath:
        """Also one that comes within seconds."""
        deadline = asyncio.get_running_loop().time() + KIND_SECONDS
        while (path := await self.find_kind(kind)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise ResourceFailedError(
                    f"the API server has no kind {kind}: declare its CustomResourceDefinition and depend on it"
                )
            await asyncio.sleep(POLL_SECONDS)
        return path

    async def serves(self, kind: ObjectType) -> bool:
        """Whether the API server serves the kind now; asks it again."""
        return await self._discover(kind) is not None

    async def _discover(self, kind: ObjectType) -> ResourcePath | None:
        prefix = "/apis" if kind.group else "/api"
        with self._readable(kind.kind):
            try:
                answer = await self._client.get(f"{prefix}/{kind.api_version}", timeout=CALL_SECONDS)
            except NotFoundError:
                self._known.pop(kind.api_version, None)
                return None
        self._known[kind.api_version] = read_kinds(kind.api_version, answer)
        return self._known[kind.api_version].get(kind.kind)

    async def find(self, place: Place) -> Json | None:
        with self._readable(place.label):
            try:
                return await self._client.get(place.url, timeout=CALL_SECONDS)
            except NotFoundError:
                return None

    async def apply(self, place: Place, inputs: Json, manager: str, *, force: bool) -> Json:
        """Makes the object what the inputs say."""
        deadline = asyncio.get_running_loop().time() + UNSERVED_SECONDS
        with self._readable(place.label):
            while True:
                try:
                    return await self._apply(place, inputs, manager, force=force)
                except NotFoundError as error:
                    if UNSERVED not in error.message or asyncio.get_running_loop().time() > deadline:
                        raise
                except ConflictError as error:
                    raise ResourceFailedError(explain_conflict(error, place)) from error
                await asyncio.sleep(POLL_SECONDS)

    async def dry_run(self, place: Place, inputs: Json, manager: str, *, force: bool = True) -> Json:
        """What an apply would lead to. Raises KubeError of a refusal: what it means depends on who asks."""
        try:
            return await self._apply(place, inputs, manager, force=force, dryRun="All")
        except UnreachableError as error:
            raise ResourceFailedError(describe(error, place.label, self.server)) from error

    async def list_pods(self, namespace: str | None, labels: dict[str, str]) -> list[Json]:
        """The pods with these labels; none where they may not be listed."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        try:
            found = await self._client.get(
                PODS.collection(namespace), {"labelSelector": selector}, timeout=CALL_SECONDS
            )
        except KubeError:
            return []
        return list(found["items"])

    async def delete(self, place: Place, uid: str | None, propagation: str) -> bool:
        """Ask for the object's end; False if it is gone, or another one has its name by now."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        with self._readable(place.label):
            try:
                await self._client.delete(place.url, options, timeout=CALL_SECONDS)
            except NotFoundError:
                return False
            except ConflictError as error:
                if uid and "uid" in error.message.lower():
                    return False
                raise
        return True

    async def _apply(self, place: Place, inputs: Json, manager: str, *, force: bool, **options: str) -> Json:
        body = build_body(inputs, place.namespace, manager)
        params = {"fieldManager": manager, "fieldValidation": "Strict", "force": str(force).lower(), **options}
        return await self._client.patch(place.url, body, PatchType.APPLY, params, timeout=CALL_SECONDS)

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        """Makes a refusal of the API server the one line of a failed operation on what has this name."""
        try:
            yield
        except KubeError as error:
            raise ResourceFailedError(describe(error, name, self.server)) from error


def explain_conflict(error: ConflictError, place: Place) -> str:
    message = " ".join(error.message.split())
    return (
        f"{place.label}: another tool set fields that this program declares: {message}; to take them back, run this "
        "again with PULUMI_K8S_ENABLE_PATCH_FORCE=true, or set kubernetes:enablePatchForce or the annotation "
        "pulumi.com/patchForce"
    )
