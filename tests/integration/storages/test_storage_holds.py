"""Who mounts a storage is decided once, whoever asks at the same time."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import pytest

from gpu_platform.clock import now_utc
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.mount_holds import HOLD_GRACE, hold_of, mounting_unit_of
from gpu_platform.kube import KubeClient
from gpu_platform.kube.paths import GPU_STORAGES, GPU_UNITS
from gpu_platform.store.storages import StorageHeldError, StorageMissingError, hold_storages, release_storages
from reconciler.informers import World
from reconciler.storages.holds import tend_hold
from tests.support.fault_report import FaultReport
from tests.support.storages import (
    create_storage,
    expect_storage_deleted,
    get_storage,
    host_unit,
    storage_object,
    wait_storage_reason,
)
from tests.support.units_and_stock import INSTANCES, create_unit, delete_unit, wait_unit_phase
from tests.support.waiting import eventually

RACERS = 10


async def hold(kube: KubeClient, unit: str, *storages: str) -> tuple[Json, ...]:
    return await hold_storages(kube, INSTANCES, unit, storages, now_utc())


async def holder_of(kube: KubeClient, name: str) -> str | None:
    return mounting_unit_of(await get_storage(kube, name))


async def test_of_many_units_that_take_a_storage_at_once_one_gets_it(kube: KubeClient) -> None:
    async with storage_object(kube, "raced"):
        outcomes = await asyncio.gather(
            *(hold(kube, f"racer-{number}", "raced") for number in range(RACERS)), return_exceptions=True
        )
        won = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, tuple)]
        assert len(won) == 1
        refusals = [outcome for outcome in outcomes if not isinstance(outcome, tuple)]
        assert all(isinstance(refusal, StorageHeldError) for refusal in refusals)
        assert await holder_of(kube, "raced") == f"racer-{won[0]}"
        await release_storages(kube, [await get_storage(kube, "raced")])


async def test_a_unit_gets_all_of_its_storages_or_none(kube: KubeClient) -> None:
    async with storage_object(kube, "all-a"), storage_object(kube, "all-b"):
        taken = await hold(kube, "other", "all-b")
        with pytest.raises(StorageHeldError, match="'all-b' is in use by unit/other"):
            await hold(kube, "wants-all", "all-b", "all-a")
        with pytest.raises(StorageMissingError, match="'all-c'"):
            await hold(kube, "wants-all", "all-a", "all-c")
        assert await holder_of(kube, "all-a") is None
        await release_storages(kube, taken)


async def test_who_loses_the_race_for_a_name_takes_nothing_from_the_winner(kube: KubeClient) -> None:
    async with storage_object(kube, "named"):
        first = await hold(kube, "same-name", "named")
        await create_unit(kube, host_unit("same-name", "named"))
        second = await hold(kube, "same-name", "named")
        assert second == ()
        await release_storages(kube, (*first, *second))
        await wait_unit_phase(kube, "same-name", "Ready")
        assert await holder_of(kube, "named") == "same-name"
        await delete_unit(kube, "same-name")


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.faults)])
async def test_a_storage_that_is_deleted_while_it_is_taken_stays_or_is_not_taken(
    kube: KubeClient, faults: FaultReport, rounds: int
) -> None:
    for number in range(rounds):
        name = f"vanishing-{number}"
        await create_storage(kube, name)
        await wait_storage_reason(kube, name, "StorageReady")
        outcome, _ = await asyncio.gather(
            hold(kube, "late", name), kube.delete(GPU_STORAGES.item(name, INSTANCES)), return_exceptions=True
        )
        if isinstance(outcome, tuple):
            await wait_storage_reason(kube, name, "StorageInUse")
            await end_by_age(kube, name)
        else:
            assert isinstance(outcome, StorageMissingError)
        await expect_storage_deleted(kube, name)
        faults.hit("taken and deleted at once")
        faults.held("what is held stays, what goes is not held")


async def test_a_hold_whose_unit_never_came_ends_after_its_grace(kube: KubeClient) -> None:
    async with storage_object(kube, "forgotten"):
        await hold(kube, "never-came", "forgotten")
        await wait_storage_reason(kube, "forgotten", "StorageReady")
        assert await holder_of(kube, "forgotten") == "never-came"
        await end_by_age(kube, "forgotten")


@dataclass(frozen=True)
class LaggingWorld:
    """The cache of a reconciler that has not heard yet of this unit's deletion."""

    unit: Json

    def units_mounting(self, _namespace: str, _storage: str) -> list[Json]:
        return [self.unit]


async def test_a_storage_that_was_released_is_not_held_again_for_a_unit_that_is_gone(kube: KubeClient) -> None:
    """Such a hold would keep the storage from being deleted for two minutes."""
    async with storage_object(kube, "released"):
        unit = host_unit("just-gone", "released")
        unit["metadata"].update(namespace=INSTANCES, creationTimestamp="2026-11-18T00:00:00Z", uid="gone")
        storage = await get_storage(kube, "released")

        assert await tend_hold(cast(World, LaggingWorld(unit)), kube, storage, now_utc()) == (False, None)
        assert await holder_of(kube, "released") is None


async def test_a_hold_ends_with_its_unit_and_when_it_is_unmounted(kube: KubeClient) -> None:
    async with storage_object(kube, "followed"):
        for unmount in (False, True):
            await hold(kube, "holder", "followed")
            await create_unit(kube, host_unit("holder", "followed"))
            await wait_unit_phase(kube, "holder", "Ready")

            async def is_confirmed() -> bool:
                current = hold_of(await get_storage(kube, "followed"))
                return current is not None and current.uid is not None

            await eventually(is_confirmed)
            if unmount:
                await kube.patch(GPU_UNITS.item("holder", INSTANCES), {"spec": {"storageMounts": []}})
            else:
                await delete_unit(kube, "holder")
            await is_free(kube, "followed")
        await delete_unit(kube, "holder")


async def end_by_age(kube: KubeClient, name: str) -> None:
    """As if the grace were over."""
    long_ago = (now_utc() - HOLD_GRACE - timedelta(seconds=1)).isoformat()
    body = {"metadata": {"annotations": {names.ANNOTATION_MOUNTED_AT: long_ago}}}
    await kube.patch(GPU_STORAGES.item(name, INSTANCES), body)
    await is_free(kube, name)


async def is_free(kube: KubeClient, name: str) -> None:
    async def nobody_holds_it() -> bool:
        answer = await kube.get(GPU_STORAGES.collection(INSTANCES), {"fieldSelector": f"metadata.name={name}"})
        return all(hold_of(item) is None for item in answer["items"])

    await eventually(nobody_holds_it)
