"""The guarded writes around a claim: one compare-and-swap takes a stock unit, one gives it back."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

from gpu_platform.adapters.kube.errors import ConflictError, NotFoundError
from gpu_platform.adapters.kube.paths import GPU_UNITS
from gpu_platform.domain import names
from gpu_platform.domain.stock import claim_holder_of

Json = dict[str, Any]


class Patcher(Protocol):
    async def patch(self, path: str, body: Json) -> Json: ...


async def claim_first(
    client: Patcher, candidates: Iterable[Json], holder: str, operation_id: str, now: datetime
) -> Json | None:
    """Take the first candidate that nobody took meanwhile; None when all of them are gone.

    The swap is on the resourceVersion: of any number of claimants of one stock unit exactly one succeeds.
    """
    for stock in candidates:
        body = _claim_patch(stock, names.STOCK_CLAIMED, holder, operation_id, now.isoformat())
        try:
            return await client.patch(_path(stock), body)
        except (ConflictError, NotFoundError):
            continue
    return None


async def release_claim(client: Patcher, stock: Json, holder: str) -> bool:
    """Give the stock back, if this holder still has it; whether it had."""
    if claim_holder_of(stock) != holder:
        return False
    try:
        await client.patch(_path(stock), _claim_patch(stock, names.STOCK_FREE, None, None, None))
    except (ConflictError, NotFoundError):
        return False
    return True


def _path(stock: Json) -> str:
    return GPU_UNITS.item(stock["metadata"]["name"], stock["metadata"]["namespace"])


def _claim_patch(stock: Json, state: str, holder: str | None, operation_id: str | None, claimed_at: str | None) -> Json:
    return {
        "metadata": {
            "uid": stock["metadata"]["uid"],
            "resourceVersion": stock["metadata"]["resourceVersion"],
            "labels": {names.LABEL_STOCK_STATE: state},
            "annotations": {
                names.ANNOTATION_CLAIMED_BY: holder,
                names.ANNOTATION_OPERATION_ID: operation_id,
                names.ANNOTATION_CLAIMED_AT: claimed_at,
            },
        }
    }
