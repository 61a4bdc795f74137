"""What is recorded of a unit or a pool: the object and its entry in the index of stacks, each read by one GET."""

from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.metadata import annotations_of
from gpu_platform.domain.stacks import Intent, intent_of
from gpu_platform.store.stacks import find_record
from platform_api.bounded_client import BoundedClient
from platform_api.http.errors import not_found
from platform_api.stacks.schemas import StackView, view_of

Json = dict[str, Any]


async def get_stack(client: BoundedClient, item: Json, what: str) -> StackView:
    """Of this unit or pool; `what` it is, in words."""
    intent = get_intent(item, what)
    return view_of(intent, await find_record(client, intent.address))


def get_intent(item: Json, what: str) -> Intent:
    """What was accepted for it; a 404 that says why it has no stack."""
    intent = intent_of(item)
    if intent is None:
        raise not_found("stack_not_found", f"the {what} {item['metadata']['name']!r} {_why_without(item)}")
    return intent


def _why_without(item: Json) -> str:
    annotations = annotations_of(item)
    if owner := annotations.get(names.ANNOTATION_OWNER_STACK):
        return f"belongs to the Pulumi stack {owner}, and has none of its own"
    if names.ANNOTATION_ACCEPTED_SPEC not in annotations:
        return "has no stack: it was not accepted over this API, but made by other means, such as kubectl"
    return f"has no stack: its annotation {names.ANNOTATION_ACCEPTED_SPEC} cannot be read; its Events say why"
