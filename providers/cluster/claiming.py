"""Taking free stock for a unit that the provider makes or starts."""

from datetime import datetime
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.gpu_units import GPUUnitSpec
from gpu_platform.domain.operations import operation_name
from gpu_platform.domain.stock import Claim, rank_stock
from gpu_platform.kube import KubeClient
from gpu_platform.store.claims import list_claims, list_free_stock, release_claim, try_claim
from providers.cluster.objects import Wanted

Json = dict[str, Any]


async def claim_stock(client: KubeClient, wanted: Wanted, now: datetime) -> Json | None:
    """What a try that died has claimed for it, else the oldest that is free; None when there is none to be had, or none
    is needed."""
    if not isinstance(wanted.spec, GPUUnitSpec) or not wanted.spec.running:
        return None
    spec_name = wanted.spec.spec_name
    held = [
        stock
        for stock in await list_claims(client, _claim(wanted))
        if stock["spec"].get("specName") == spec_name and "deletionTimestamp" not in stock["metadata"]
    ]
    # Claimed once more: from now on it has another minute, and the janitor does not free it under our hands.
    for stock in (*held, *rank_stock(await list_free_stock(client, spec_name), spec_name)):
        taken = await try_claim(client, stock, _claim(wanted), now)
        if taken is not None:
            return taken
    return None


async def give_back(client: KubeClient, wanted: Wanted, stock: Json) -> None:
    await release_claim(client, stock, _claim(wanted))


def claim_mark(wanted: Wanted) -> str:
    """In the place of an Operation's name, and never one: the request that first made this unit has ended, and a claim
    for what has ended is released at once. One that names no Operation has a minute, in which the unit is made; if this
    process dies before, the stock is free again after that (reconciler/orphans/plan.py)."""
    return f"provider-{operation_name(wanted.tenant, wanted.operation_id)}"


def _claim(wanted: Wanted) -> Claim:
    return Claim(names.claim_holder(wanted.namespace or "", wanted.name), claim_mark(wanted))
