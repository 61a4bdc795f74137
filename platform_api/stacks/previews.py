"""Previews: what Pulumi would change. An Operation and nothing else: the API records it, a stack worker does it."""

import secrets
from dataclasses import dataclass
from typing import Any

from gpu_platform.adapters.kube import NotFoundError
from gpu_platform.adapters.kube.paths import OPERATIONS
from gpu_platform.adapters.kube.requests import find
from gpu_platform.adapters.ledger import open_operation, spec_of
from gpu_platform.domain.operations import OperationKind, OperationTarget, operation_name
from platform_api.bounded_client import BoundedClient
from platform_api.changing import refuse_leaving
from platform_api.http.errors import not_found, unavailable
from platform_api.keys.key_ring import Caller
from platform_api.stacks.schemas import PreviewView, preview_view_of
from platform_api.stacks.service import get_intent
from platform_api.tenant_operations import build_act, check_replay

Json = dict[str, Any]


@dataclass(frozen=True)
class AcceptedPreview:
    preview: PreviewView
    is_new: bool


async def accept_preview(
    client: BoundedClient, caller: Caller, unit: Json, operation_id: str | None
) -> AcceptedPreview:
    """
    | operationID   | used for                      | answer                      |
    | ------------- | ----------------------------- | --------------------------- |
    | not said, new | –                             | recorded: a pending preview |
    | used          | a preview of this very unit   | that one as it is now       |
    | used          | another unit, another request | 409                         |
    """
    get_intent(unit, "unit")
    refuse_leaving(unit, "unit")
    wanted = build_preview(caller, unit, operation_id or f"preview-{secrets.token_hex(8)}")
    try:
        opened = await open_operation(client, wanted)
    except NotFoundError as error:
        # The namespace is on its way out, or the record of an hour ago was removed right now.
        raise unavailable("the preview could not be recorded; try again") from error
    check_replay(opened.operation, wanted)
    return AcceptedPreview(preview_view_of(opened.operation), opened.is_new)


async def get_preview(client: BoundedClient, caller: Caller, unit_name: str, operation_id: str) -> PreviewView:
    operation = await find(client, OPERATIONS, operation_name(caller.tenant, operation_id), caller.namespace)
    if operation is not None:
        spec = spec_of(operation)
        if spec.kind is OperationKind.PREVIEW_UNIT and spec.target.name == unit_name:
            return preview_view_of(operation)
    raise not_found(
        "preview_not_found",
        f"there is no preview of the unit {unit_name!r} with the operationID {operation_id!r}; "
        "they are kept for an hour",
    )


def build_preview(caller: Caller, unit: Json, operation_id: str) -> Json:
    metadata = unit["metadata"]
    target = OperationTarget(kind="GPUUnit", namespace=caller.namespace, name=metadata["name"], uid=metadata["uid"])
    return build_act(caller, operation_id, OperationKind.PREVIEW_UNIT, target)
