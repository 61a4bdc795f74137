"""Jobs: what operators asked for, and how far it came. The ledger is their only memory."""

from datetime import datetime

from gpu_platform.api_models.envelope import ErrorDetail
from gpu_platform.api_models.stock import JobStatus, JobType, JobView
from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import (
    OPERATORS,
    OperationKind,
    OperationPhase,
    OperationSpec,
    OperationTarget,
    operation_name,
    request_hash,
)
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.stacks import address_of
from gpu_platform.domain.stock import PoolRequest, StockRequest, StockUnitsRequest, find_size_problem
from gpu_platform.kube import NotFoundError
from gpu_platform.kube.paths import GPU_SPECS, OPERATIONS, STOCK_POOLS
from gpu_platform.kube.requests import find, list_pages
from gpu_platform.store.ledger import Opened, build_operation, open_operation, spec_of, status_of
from platform_api.cluster import Cluster
from platform_api.http.errors import ApiError, conflict, invalid, invalid_field, not_found, unavailable
from platform_api.kube_health import BoundedClient
from platform_api.objects.idempotent_create import Accepted, check_replay

TYPES = {
    OperationKind.SEED_STOCK_UNITS: JobType.SEED_STOCK_UNITS,
    OperationKind.CREATE_STOCK_POOL: JobType.CREATE_STOCK_POOL,
}
"""The operations that are jobs."""

STATUSES = {
    None: JobStatus.PENDING,
    OperationPhase.PENDING: JobStatus.PENDING,
    OperationPhase.RUNNING: JobStatus.RUNNING,
    OperationPhase.SUCCEEDED: JobStatus.SUCCEEDED,
    OperationPhase.FAILED: JobStatus.FAILED,
}

PAGE = 500

LIST_LIMIT = 500
"""Jobs that one answer shows: the newest."""


def is_job(operation: Json) -> bool:
    return operation["spec"]["kind"] in TYPES


def view_job(operation: Json) -> JobView:
    spec, status = spec_of(operation), status_of(operation)
    created_at = datetime.fromisoformat(operation["metadata"]["creationTimestamp"])
    error = status.message or status.reason if status.phase is OperationPhase.FAILED else None
    return JobView(
        id=spec.operation_id,
        operation_id=spec.operation_id,
        type=TYPES[spec.kind],
        status=STATUSES[status.phase],
        error=error,
        object_name=spec.target.name,
        object_namespace=spec.target.namespace,
        stack=_stack_name(spec.target) if status.phase is not OperationPhase.FAILED else None,
        created_at=created_at,
        updated_at=status.finished_at or status.started_at or created_at,
    )


def _stack_name(target: OperationTarget) -> str | None:
    """From its name: the pool may not be there yet."""
    address = address_of({"kind": target.kind, "metadata": {"namespace": target.namespace, "name": target.name}})
    return address.full_name if address is not None else None


async def accept_job(cluster: Cluster, operation_id: str, request: StockRequest, pool_name: str) -> Accepted[JobView]:
    """
    | operationID | request                                        | answer                              |
    | ----------- | ---------------------------------------------- | ----------------------------------- |
    | used        | the same                                       | its job as it is today              |
    | used        | another                                        | 409, whatever else may be wrong     |
    | new         | a size that the catalogue does not have        | 400, nothing is recorded            |
    | new         | a pool whose name another one has              | 409, nothing is recorded            |
    | new         | any other                                      | recorded: a pending job             |
    """
    wanted = build_job(operation_id, request, pool_name)
    recorded = await _find_operation(cluster.client, operation_id)
    if recorded is not None:
        return Accepted(_replay(recorded, wanted), is_new=False)
    await _check_new(cluster, request, pool_name)
    opened = await _open(cluster.client, wanted)
    if opened.is_new:
        return Accepted(view_job(opened.operation), is_new=True)
    return Accepted(_replay(opened.operation, wanted), is_new=False)


async def get_job(client: BoundedClient, operation_id: str) -> JobView:
    operation = await _find_operation(client, operation_id)
    if operation is None or not is_job(operation):
        raise not_found("job_not_found", f"there is no job with the operationID {operation_id!r}")
    return view_job(operation)


async def list_jobs(client: BoundedClient) -> tuple[JobView, ...]:
    """Newest first. The API server lists by name, which is a hash: all have to be read to know the newest."""
    pages = list_pages(client, OPERATIONS.collection(names.STOCK_NAMESPACE), {}, PAGE)
    operations = [operation async for page in pages for operation in page["items"]]
    jobs = sorted(
        (view_job(operation) for operation in operations if is_job(operation)),
        key=lambda job: (job.created_at, job.updated_at, job.id),
        reverse=True,
    )
    return tuple(jobs[:LIST_LIMIT])


def build_job(operation_id: str, request: StockRequest, pool_name: str) -> Json:
    kinds = {StockUnitsRequest: OperationKind.SEED_STOCK_UNITS, PoolRequest: OperationKind.CREATE_STOCK_POOL}
    spec = OperationSpec(
        operation_id=operation_id,
        kind=kinds[type(request)],
        request_hash=request_hash(request),
        request=request.to_json(),
        target=OperationTarget(kind="StockPool", namespace=names.STOCK_NAMESPACE, name=pool_name),
    )
    return build_operation(operation_name(OPERATORS, operation_id), names.STOCK_NAMESPACE, spec)


def find_size_refusal(request: StockRequest, catalogue: GPUSpecSpec | None) -> ApiError | None:
    """What the caller has to say otherwise, by field."""
    problem = find_size_problem(request, catalogue)
    if problem is None:
        return None
    if catalogue is None:
        unsaid = [field for field in ("memory", "gpu") if getattr(request, field) is None]
        return invalid(*(ErrorDetail(field=field, message=f"is required: {problem}") for field in unsaid))
    field, _, message = problem.partition(": ")
    return invalid_field(field, message)


def _replay(recorded: Json, wanted: Json) -> JobView:
    check_replay(recorded, wanted)
    return view_job(recorded)


async def _open(client: BoundedClient, wanted: Json) -> Opened:
    try:
        return await open_operation(client, wanted)
    except NotFoundError as error:
        # No such namespace yet, or the record of long ago was removed right now.
        raise unavailable(f"the job could not be recorded: {error.message}") from error


async def _check_new(cluster: Cluster, request: StockRequest, pool_name: str) -> None:
    entry = await cluster.find(GPU_SPECS, None, request.spec_name)
    refusal = find_size_refusal(request, GPUSpecSpec.model_validate(entry["spec"]) if entry else None)
    if refusal is not None:
        raise refusal
    if not isinstance(request, PoolRequest):
        return
    if await find(cluster.client, STOCK_POOLS, pool_name, names.STOCK_NAMESPACE) is not None:
        raise conflict(f"there is a stock pool {pool_name!r} already; change it, or choose another name")


async def _find_operation(client: BoundedClient, operation_id: str) -> Json | None:
    return await find(client, OPERATIONS, operation_name(OPERATORS, operation_id), names.STOCK_NAMESPACE)
