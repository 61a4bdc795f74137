"""The guarded writes around a claim: one compare-and-swap takes a stock unit, one gives it back."""

from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import Claim, claim_of
from gpu_platform.kube.errors import ConflictError, NotFoundError
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.kube.requests import ObjectClient, as_seen


async def list_free_stock(client: ObjectClient, spec_name: str) -> tuple[Json, ...]:
    """What the API server itself calls free; not all of it is Ready."""
    selectors = {
        "fieldSelector": f"spec.specName={spec_name}",
        "labelSelector": f"{names.LABEL_STOCK_STATE}={names.STOCK_FREE}",
    }
    answer = await client.get(GPU_UNITS.collection(names.STOCK_NAMESPACE), selectors)
    return tuple(answer["items"])


async def list_claims(client: ObjectClient, claim: Claim) -> tuple[Json, ...]:
    """Returns the stock that this claim holds, read from the API server itself."""
    selector = f"{names.LABEL_STOCK_STATE}={names.STOCK_CLAIMED}"
    answer = await client.get(GPU_UNITS.collection(names.STOCK_NAMESPACE), {"labelSelector": selector})
    return tuple(stock for stock in answer["items"] if claim_of(stock) == claim)


async def try_claim(client: ObjectClient, stock: Json, claim: Claim, now: datetime) -> Json | None:
    """Claims this stock unit; None when it was claimed or modified concurrently.

    The swap is on the resourceVersion: of any number of claimants of one stock unit exactly one succeeds.
    """
    body = _claim_patch(stock, names.STOCK_CLAIMED, claim.holder, claim.operation, now.isoformat())
    try:
        return await client.patch(_path(stock), body)
    except (ConflictError, NotFoundError):
        return None


async def release_claim(client: ObjectClient, stock: Json, claim: Claim) -> bool:
    """Releases the stock if this claim still holds it; returns whether it did."""
    if claim_of(stock) != claim:
        return False
    try:
        await client.patch(_path(stock), _claim_patch(stock, names.STOCK_FREE, None, None, None))
    except (ConflictError, NotFoundError):
        return False
    return True


def _path(stock: Json) -> str:
    return GPU_UNITS.item(stock["metadata"]["name"], stock["metadata"]["namespace"])


def _claim_patch(stock: Json, state: str, holder: str | None, operation: str | None, claimed_at: str | None) -> Json:
    return {
        "metadata": {
            **as_seen(stock),
            "labels": {names.LABEL_STOCK_STATE: state},
            "annotations": {
                names.ANNOTATION_CLAIMED_BY: holder,
                names.ANNOTATION_OPERATION_ID: operation,
                names.ANNOTATION_CLAIMED_AT: claimed_at,
            },
        }
    }
