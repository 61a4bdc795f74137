"""The FRP tokens of units: one Secret for each, that only the sidecar of the unit reads.

A token must be kept before the unit that needs it is there, so its Secret belongs to the Operation first, and goes with
it when nothing comes of the request. The units controller gives it to the unit. The Secret of a later token belongs to
the unit from the start, which lists it before it is made (`domain/ssh`).
"""

import base64
from contextlib import suppress
from dataclasses import dataclass, field

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.kube.errors import ConflictError, NotFoundError
from gpu_platform.kube.paths import SECRETS
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.store.ledger import create_or_find

TOKEN_KEY = "token"  # noqa: S105 - the name of a field
TRIES = 5
"""Against the garbage collector, which may be removing a Secret of an earlier owner."""


@dataclass(frozen=True)
class UnitToken:
    token: str = field(repr=False)
    digest: str
    """By which its Secret is called."""


async def ensure_token_secret(client: ObjectClient, unit: str, token: UnitToken, owner: Json) -> bool:
    """Keeps the token for as long as `owner` (an Operation, or the unit itself) or an earlier owner exists. Returns
    whether it was not there before."""
    body = build_token_secret(unit, token, owner)
    for _ in range(TRIES):
        live, is_new = await create_or_find(client, SECRETS, body)
        if is_new:
            return True
        with suppress(ConflictError, NotFoundError):
            await _join_owners(client, live, body)
            return False
    raise ConflictError(409, "Conflict", f"secrets: {body['metadata']['name']} is made and deleted again and again")


def build_token_secret(unit: str, token: UnitToken, owner: Json) -> Json:
    metadata = owner["metadata"]
    reference = names.owner_reference(owner["kind"], metadata["name"], metadata["uid"])
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": names.ssh_token_secret(unit, token.digest),
            "namespace": metadata["namespace"],
            "labels": names.unit_labels(unit),
            # Not the controller: of those there can be only one, and an earlier owner may still stand there.
            "ownerReferences": [{**reference, "controller": False, "blockOwnerDeletion": False}],
        },
        "data": {TOKEN_KEY: base64.b64encode(token.token.encode()).decode()},
    }


async def _join_owners(client: ObjectClient, live: Json, body: Json) -> None:
    """Which owner is the last one, the garbage collector finds out: one that is gone holds nothing."""
    metadata = live["metadata"]
    [ours] = body["metadata"]["ownerReferences"]
    owners = metadata.get("ownerReferences") or []
    if "deletionTimestamp" in metadata:
        raise ConflictError(409, "Conflict", f"secrets: {metadata['name']} is on its way out")
    if any(owner["uid"] == ours["uid"] for owner in owners) and live.get("data") == body["data"]:
        return
    joined = {**metadata, "ownerReferences": [*(each for each in owners if each["uid"] != ours["uid"]), ours]}
    await client.replace(SECRETS.of(live), {**live, "metadata": joined, "data": body["data"]})
