"""The service that units, storages and functions share: reads, guarded changes, recorded deletions, and their stacks.

Reads are asked of the API server itself, so that a caller sees what any replica has just accepted. Every write is of
the object as it was seen.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import ClassVar, TypeVar

from gpu_platform.api_models.envelope import Envelope
from gpu_platform.api_models.stacks import StackView
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stacks import as_accepted
from gpu_platform.domain.value import Value
from gpu_platform.kube import ResourcePath
from gpu_platform.kube.requests import find
from gpu_platform.store.ledger import build_deletion, open_operation, settle_creation
from platform_api.auth.keys import Caller
from platform_api.cluster import Cluster
from platform_api.http.bodies import etag_of
from platform_api.http.errors import object_not_found
from platform_api.http.routes import Answer
from platform_api.objects.optimistic_update import change_as_seen, refuse_owned
from platform_api.objects.reads import read_page
from platform_api.objects.tenant_limits import ObjectLimits
from platform_api.stacks.service import RecordingWaits, get_stack

View = TypeVar("View", bound=Value)


def answer_object(
    item: Json, view: View, status: int | None = None, stack_recorded: bool | None = None
) -> Answer[Envelope[View]]:
    """The view of an object, with its ETag."""
    if stack_recorded is not None:
        view = view.model_copy(update={"stack_recorded": stack_recorded})
    return Answer(Envelope(data=view), status, {"ETag": etag_of(item)})


class ObjectService:
    """The tenants' objects of one kind."""

    path: ClassVar[ResourcePath]
    what: ClassVar[str]
    """The kind in plain words."""

    def __init__(self, cluster: Cluster, limits: ObjectLimits, now: Callable[[], datetime]) -> None:
        self.client = cluster.client
        self.recordings = RecordingWaits(cluster.client)
        self._limits = limits
        self._now = now

    async def get(self, caller: Caller, name: str) -> Json:
        item = await find(self.client, self.path, name, caller.namespace)
        if item is None:
            raise object_not_found(self.what, name)
        return item

    async def list_page(
        self, caller: Caller, limit: int, token: str | None, selectors: Sequence[str] = ()
    ) -> tuple[list[Json], str | None]:
        return await read_page(self.client, self.path, caller.namespace, limit, token, selectors)

    async def get_stack(self, caller: Caller, name: str) -> StackView:
        return await get_stack(self.client, await self.get(caller, name), self.what)

    async def _change(
        self, caller: Caller, name: str, if_match: str | None, write: Callable[[Json], Awaitable[Json]]
    ) -> Json:
        """`write` as in `change_as_seen`."""
        return await change_as_seen(self.what, name, if_match, lambda: self._get_changeable(caller, name), write)

    async def _get_changeable(self, caller: Caller, name: str) -> Json:
        """The object as it was accepted: a change must not make an edit by other means a part of it."""
        return as_accepted(await self._get_own(caller, name))

    async def _get_own(self, caller: Caller, name: str) -> Json:
        """The object; 409 for one of a Pulumi stack, which the API does not change or delete."""
        item = await self.get(caller, name)
        refuse_owned(item, self.what)
        return item

    async def _record_deletion(self, caller: Caller, item: Json) -> Json:
        """Returns the Operation of the deletion. Once it is recorded, the object is not put back."""
        await settle_creation(self.client, item, caller.tenant, self._now())
        deletion = build_deletion(item, caller.tenant)
        opened = await self._limits.find_replay(caller, deletion) or await open_operation(self.client, deletion)
        return opened.operation
