"""Acquisition of a unit: claims stock, holds the storages that it mounts, writes the unit, and gives back what was
taken when nothing was written. The API, the recovery of operations, the cluster provider and the functions controller
all acquire units here.

A unit is never applied: it is created by POST, and changed by PUT as it was seen. The order of the first two steps is
the caller's. Each step is one guarded write, and each leaves a state that has a repair:

| step | what                                               | what repairs it when the process dies right after        |
| ---- | -------------------------------------------------- | -------------------------------------------------------- |
| 1    | claim stock: compare-and-swap on resourceVersion   | claim of an Operation: recovery makes the unit after     |
|      |                                                    | 15 s; any other: the next try of the same claim takes it |
|      |                                                    | again, or the orphans controller releases it after 60 s  |
| 2    | hold storages: compare-and-swap on each            | the next try holds them again; without a unit, the       |
|      |                                                    | storages controller ends the hold after 120 s            |
| 3    | create the unit, or replace it as it was seen      | nothing is left to do: the unit stands on the claim, and |
|      |                                                    | its controller deletes the stock; recovery marks the     |
|      |                                                    | Operation after 15 s                                     |
| undo | 3 wrote nothing for certain: release the storages  | as 2                                                     |
| undo | release the claim, unless the unit stands on it    | as 1                                                     |
| –    | unknown whether 3 wrote: nothing is given back     | as 1 and 2, once it is known                             |
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.stock import Claim, claim_of, is_from
from gpu_platform.kube.errors import KubeError
from gpu_platform.kube.paths import GPU_UNITS
from gpu_platform.kube.requests import ObjectClient, find, swap_metadata
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import NameTakenError, create_or_adopt
from gpu_platform.store.storages import hold_storages, release_storages


@dataclass(frozen=True)
class Taken:
    """What one try took for a unit that it creates or changes."""

    stock: Json | None = None
    claim: Claim | None = None
    """The claim on that stock."""

    storages: tuple[Json, ...] = ()


async def find_unit(client: ObjectClient, namespace: str, name: str) -> Json | None:
    return await find(client, GPU_UNITS, name, namespace)


async def list_free_stock(client: ObjectClient, spec_name: str) -> tuple[Json, ...]:
    """Returns what the API server itself calls free; not all of it is Ready."""
    return await _list_stock(client, names.STOCK_FREE, {"fieldSelector": f"spec.specName={spec_name}"})


async def list_claims(client: ObjectClient, claim: Claim) -> tuple[Json, ...]:
    """Returns the stock that this claim holds, read from the API server itself."""
    return tuple(stock for stock in await _list_stock(client, names.STOCK_CLAIMED, {}) if claim_of(stock) == claim)


async def claim_first(client: ObjectClient, candidates: Iterable[Json], claim: Claim, now: datetime) -> Json | None:
    """Claims the first of these that can be had; None when none can. What the claim holds already is claimed once more:
    from then on it has another minute, and the orphans controller does not release it meanwhile."""
    for stock in candidates:
        if (taken := await try_claim(client, stock, claim, now)) is not None:
            return taken
    return None


async def try_claim(client: ObjectClient, stock: Json, claim: Claim, now: datetime) -> Json | None:
    """Claims this stock unit; None when it was claimed or modified concurrently."""
    return await _swap(client, stock, names.STOCK_CLAIMED, claim.holder, claim.operation, now.isoformat())


async def release_claim(client: ObjectClient, stock: Json, claim: Claim) -> bool:
    """Releases the stock if this claim still holds it; returns whether it did."""
    if claim_of(stock) != claim:
        return False
    return await _swap(client, stock, names.STOCK_FREE, None, None, None) is not None


async def release_unused_claim(client: ObjectClient, stock: Json, claim: Claim) -> None:
    """Releases the stock, unless the unit of the claim's holder stands on it: another try of the same claim, or an
    earlier one whose answer was lost, may have created it."""
    namespace, _, name = claim.holder.partition("/")
    unit = await find_unit(client, namespace, name) if namespace and name else None
    if unit is None or not is_from(unit, stock):
        await release_claim(client, stock, claim)


@asynccontextmanager
async def given_back_unless_written(client: ObjectClient, taken: Taken) -> AsyncIterator[None]:
    """Gives back what was taken when the write of the unit inside wrote nothing for certain. Where that is unknown, the
    unit may exist, and keeps it."""
    try:
        yield
    except (KubeError, NameTakenError) as error:
        if isinstance(error, NameTakenError) or error.wrote_nothing:
            await release_storages(client, taken.storages)
            if taken.stock is not None and taken.claim is not None:
                await release_unused_claim(client, taken.stock, taken.claim)
        raise


async def create_or_adopt_unit(client: ObjectClient, body: Json, now: datetime) -> Json:
    """Creates the unit, or returns the one that an earlier try of the same request created. StorageMissingError,
    StorageHeldError: a storage that it mounts cannot be had, and nothing was written."""
    metadata = body["metadata"]
    held = await hold_storages(client, metadata["namespace"], metadata["name"], mounted_storages(body), now)
    pass_point("unit.storages-held")
    async with given_back_unless_written(client, Taken(storages=held)):
        return await create_or_adopt(client, GPU_UNITS, body)


async def replace_unit(client: ObjectClient, unit: Json) -> Json:
    """Replaces the unit as it was seen: uid and resourceVersion are in the body."""
    return await client.replace(GPU_UNITS.of(unit), unit)


async def replace_mounting_unit(client: ObjectClient, before: Json, after: Json, now: datetime) -> Json:
    """Replaces the unit as it was seen, once the storages are held that it did not mount before. Those that it no
    longer mounts are released by the storages controller. Errors as of `create_or_adopt_unit`, and ConflictError or
    NotFoundError."""
    metadata = after["metadata"]
    added = mounted_storages(after) - mounted_storages(before)
    held = await hold_storages(client, metadata["namespace"], metadata["name"], added, now)
    pass_point("unit.storages-added")
    async with given_back_unless_written(client, Taken(storages=held)):
        return await replace_unit(client, after)


def mounted_storages(unit: Json) -> set[str]:
    return {mount["name"] for mount in unit["spec"].get("storageMounts") or ()}


async def _list_stock(client: ObjectClient, state: str, selectors: dict[str, str]) -> tuple[Json, ...]:
    selectors = {**selectors, "labelSelector": f"{names.LABEL_STOCK_STATE}={state}"}
    answer = await client.get(GPU_UNITS.collection(names.STOCK_NAMESPACE), selectors)
    return tuple(answer["items"])


async def _swap(
    client: ObjectClient, stock: Json, state: str, holder: str | None, operation: str | None, claimed_at: str | None
) -> Json | None:
    metadata = {
        "labels": {names.LABEL_STOCK_STATE: state},
        "annotations": {
            names.ANNOTATION_CLAIMED_BY: holder,
            names.ANNOTATION_OPERATION_ID: operation,
            names.ANNOTATION_CLAIMED_AT: claimed_at,
        },
    }
    return await swap_metadata(client, GPU_UNITS, stock, metadata)
