"""Takes one step of an operation. Every write is guarded, so that of two who take the same step one changes nothing."""

from datetime import datetime

from gpu_platform.domain.operations import FINAL_PHASES
from gpu_platform.kube import AlreadyExistsError, KubeError
from gpu_platform.kube.requests import ObjectClient
from gpu_platform.process import pass_point
from gpu_platform.store.ledger import NameTakenError, patch_operation_status, remove_operation, trim_operation
from gpu_platform.store.storages import StorageHeldError, StorageMissingError
from gpu_platform.store.unit_acquisition import create_or_adopt_unit, release_claim
from reconciler.guarded_writes import CreateObject, DeleteObject, ReplaceObject, apply_write
from reconciler.operations.observe import Record
from reconciler.operations.plan import ObjectStep, ReleaseClaims, RemoveOperation, Step, TrimRequest, WriteStatus

NOUNS = {"GPUFunction": "Function", "GPUSpec": "Spec", "GPUStorage": "Storage", "GPUUnit": "Unit", "StockPool": "Pool"}
VERBS = {CreateObject: "Create", ReplaceObject: "Start", DeleteObject: "Delete"}
PAST = {CreateObject: "created", ReplaceObject: "started", DeleteObject: "deleted"}


class RefusedError(Exception):
    """The API server will never accept what this step writes."""


def name_of(step: Step) -> str:
    """The step in the log, such as `DeleteUnit`."""
    if isinstance(step, ObjectStep):
        return f"{VERBS[type(step)]}{NOUNS[step.kind]}"
    return type(step).__name__


async def apply_step(step: Step, record: Record, client: ObjectClient, now: datetime) -> None:
    match step:
        case CreateObject() | ReplaceObject() | DeleteObject():
            await _write_object(step, client, now)
        case ReleaseClaims(claims):
            for stock in claims:
                await release_claim(client, stock, record.claim)
            pass_point("operations.released")
        case WriteStatus(status):
            await patch_operation_status(client, record.item, status)
            pass_point("operations.finished" if status.phase in FINAL_PHASES else "operations.begun")
        case TrimRequest():
            await _trim(record, client)
            pass_point("operations.trimmed")
        case RemoveOperation():
            await remove_operation(client, record.item)
            pass_point("operations.removed")


async def _write_object(step: ObjectStep, client: ObjectClient, now: datetime) -> None:
    try:
        if isinstance(step, CreateObject) and step.kind == "GPUUnit":
            await create_or_adopt_unit(client, step.body, now)
        else:
            await apply_write(step, client)
    except (AlreadyExistsError, NameTakenError):
        # Another writer was faster; the next look says which one.
        return
    except (StorageMissingError, StorageHeldError) as error:
        raise RefusedError(str(error)) from error
    except KubeError as error:
        if error.is_refusal and not isinstance(step, DeleteObject):
            raise RefusedError(error.message) from error
        raise
    pass_point(f"operations.{NOUNS[step.kind].lower()}-{PAST[type(step)]}")


async def _trim(record: Record, client: ObjectClient) -> None:
    try:
        await trim_operation(client, record.item)
    except KubeError as error:
        # The custom resource or the role is still the one of an earlier version.
        if error.is_refusal:
            raise RefusedError(error.message) from error
        raise
