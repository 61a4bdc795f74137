"""Takes one step of an operation. Every write is guarded, so that of two who take the same step one changes nothing."""

from datetime import datetime

from gpu_platform.domain.operations import FINAL_PHASES
from gpu_platform.kube import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from gpu_platform.kube.paths import GPU_FUNCTIONS, GPU_SPECS, GPU_UNITS, STOCK_POOLS, ResourcePath
from gpu_platform.kube.requests import ObjectClient, delete_that
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import NameTakenError, patch_operation_status, remove_operation, trim_operation
from gpu_platform.store.storages import StorageHeldError, StorageMissingError, delete_as_seen
from gpu_platform.store.unit_acquisition import create_or_adopt_unit, release_claim, replace_unit
from reconciler.operations.observe import Record
from reconciler.operations.steps import (
    CreatePool,
    CreateSpec,
    CreateUnit,
    DeleteFunction,
    DeletePool,
    DeleteStorage,
    DeleteUnit,
    ReleaseClaims,
    RemoveOperation,
    StartUnit,
    Step,
    TrimRequest,
    WriteStatus,
)


class RefusedError(Exception):
    """The API server will never accept what this step writes."""


async def apply_step(step: Step, record: Record, client: ObjectClient, now: datetime) -> None:
    match step:
        case ReleaseClaims(claims):
            for stock in claims:
                await release_claim(client, stock, record.claim)
            pass_point("operations.released")
        case CreateUnit() | StartUnit() | CreateSpec() | CreatePool():
            await _make(step, client, now)
        case DeleteUnit(unit):
            await _delete(GPU_UNITS, unit["metadata"], client)
            pass_point("operations.unit-deleted")
        case DeletePool(pool):
            await _delete(STOCK_POOLS, pool["metadata"], client)
            pass_point("operations.pool-deleted")
        case DeleteFunction(function):
            await _delete(GPU_FUNCTIONS, function["metadata"], client)
            pass_point("operations.function-deleted")
        case DeleteStorage(storage):
            await _delete_storage(storage, client)
            pass_point("operations.storage-deleted")
        case WriteStatus() | TrimRequest() | RemoveOperation():
            await _write_record(step, record, client)


async def _write_record(
    step: WriteStatus | TrimRequest | RemoveOperation, record: Record, client: ObjectClient
) -> None:
    match step:
        case WriteStatus(status):
            await patch_operation_status(client, record.item, status)
            pass_point("operations.finished" if status.phase in FINAL_PHASES else "operations.begun")
        case TrimRequest():
            await _trim(record, client)
            pass_point("operations.trimmed")
        case RemoveOperation():
            await remove_operation(client, record.item)
            pass_point("operations.removed")


async def _make(step: CreateUnit | StartUnit | CreateSpec | CreatePool, client: ObjectClient, now: datetime) -> None:
    try:
        match step:
            case CreateUnit(body):
                await create_or_adopt_unit(client, body, now)
                pass_point("operations.unit-created")
            case StartUnit(body):
                await replace_unit(client, body)
                pass_point("operations.unit-started")
            case CreateSpec(body):
                await client.create(GPU_SPECS.collection(), body)
                pass_point("operations.spec-created")
            case CreatePool(body):
                await client.create(STOCK_POOLS.collection(body["metadata"]["namespace"]), body)
                pass_point("operations.pool-created")
    except (AlreadyExistsError, NameTakenError):
        # Somebody was faster; the next look says who.
        return
    except (StorageMissingError, StorageHeldError) as error:
        raise RefusedError(str(error)) from error
    except KubeError as error:
        if error.is_refusal:
            raise RefusedError(error.message) from error
        raise


async def _trim(record: Record, client: ObjectClient) -> None:
    try:
        await trim_operation(client, record.item)
    except KubeError as error:
        # The custom resource or the role is still the one of an earlier version.
        if error.is_refusal:
            raise RefusedError(error.message) from error
        raise


async def _delete(path: ResourcePath, metadata: dict[str, str], client: ObjectClient) -> None:
    try:
        await delete_that(client, path, metadata)
    except NotFoundError:
        return


async def _delete_storage(storage: dict[str, dict[str, str]], client: ObjectClient) -> None:
    try:
        await delete_as_seen(client, storage)
    except (ConflictError, NotFoundError):
        # The next look says who uses it by now, or that it is gone.
        return
