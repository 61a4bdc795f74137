"""What the API answers, as far as the command line reads it. `--json` prints the answers as they came."""

from typing import Any, Literal, NotRequired, TypedDict, final

from gpu_platform.domain.json_text import Json


class UnitView(TypedDict):
    name: str
    namespace: str
    specName: str
    sourceStockName: NotRequired[str | None]
    operationID: NotRequired[str | None]
    image: NotRequired[str | None]
    memory: NotRequired[str | None]
    gpu: NotRequired[int | None]
    template: NotRequired[Json]
    access: NotRequired[Json | None]
    ssh: NotRequired[Json | None]
    sshStatus: NotRequired[Json | None]
    storageMounts: NotRequired[list[Json]]
    running: bool
    phase: str
    generation: int
    observedGeneration: NotRequired[int | None]
    createdAt: str
    nodeName: NotRequired[str | None]
    accessURL: NotRequired[str | None]
    proxyURL: NotRequired[str | None]
    publicURL: NotRequired[str | None]
    publicMessage: NotRequired[str | None]
    stack: NotRequired[str | None]
    reason: NotRequired[str | None]
    message: NotRequired[str | None]


class EventView(TypedDict):
    type: str
    reason: str
    message: str
    object: str
    count: int
    lastSeen: str | None


class AddressView(TypedDict):
    url: str
    reach: Literal["cluster", "host"]
    proxyURL: NotRequired[str | None]
    publicURL: NotRequired[str | None]


class GpuView(TypedDict):
    gpu: str
    uuid: str
    product: str
    node: str
    partition: NotRequired[str]
    utilizationPercent: NotRequired[float]
    memoryUsedMiB: NotRequired[float]
    memoryFreeMiB: NotRequired[float]
    memoryTotalMiB: NotRequired[float]


class UnitMetricsView(TypedDict):
    unit: str
    readAt: str
    devices: list[GpuView]


class StackView(TypedDict):
    name: str
    recorded: bool
    acceptedHash: str
    recordedHash: NotRequired[str | None]
    recordedAt: NotRequired[str | None]
    resources: NotRequired[int | None]
    outputs: NotRequired[Json | None]
    error: NotRequired[str | None]
    failures: int


class PropertyChangeView(TypedDict):
    path: str
    kind: str
    old: NotRequired[Any]
    new: NotRequired[Any]


class PreviewStepView(TypedDict):
    op: str
    resource: str
    type: str
    properties: list[PropertyChangeView]


class PreviewView(TypedDict):
    operationID: str
    unit: str
    phase: Literal["Pending", "Running", "Succeeded", "Failed"]
    reason: NotRequired[str | None]
    message: NotRequired[str | None]
    changes: NotRequired[dict[str, int] | None]
    steps: NotRequired[list[PreviewStepView] | None]


class FieldDriftView(TypedDict):
    field: str
    accepted: NotRequired[Any]
    found: NotRequired[Any]


class DriftView(TypedDict):
    stack: str
    kind: str
    tenant: str
    name: str
    since: str
    action: str
    doing: str
    differences: list[FieldDriftView]
    error: NotRequired[str | None]
    failures: int


class CorrectionView(TypedDict):
    stack: str
    since: str
    correctedAt: str
    differences: list[FieldDriftView]


class DriftReport(TypedDict):
    items: list[DriftView]
    total: int
    corrected: list[CorrectionView]


class StockUnitView(TypedDict):
    name: str
    pool: NotRequired[str | None]
    specName: str
    state: Literal["available", "waiting", "claimed"]
    claimedBy: NotRequired[str | None]
    phase: str
    nodeName: NotRequired[str | None]
    createdAt: str
    reason: NotRequired[str | None]
    message: NotRequired[str | None]


class PoolView(TypedDict):
    name: str
    namespace: str
    specName: str
    replicas: int
    replenish: str
    image: NotRequired[str | None]
    available: int
    claimed: int
    phase: str
    generation: int
    observedGeneration: NotRequired[int | None]
    createdAt: str
    stack: NotRequired[str | None]
    reason: NotRequired[str | None]
    message: NotRequired[str | None]


class StorageView(TypedDict):
    name: str
    namespace: str
    size: str
    storageClassName: NotRequired[str | None]
    prepare: NotRequired[Json | None]
    accessor: Json
    retain: bool
    phase: str
    claimName: NotRequired[str | None]
    capacity: NotRequired[str | None]
    mountedBy: list[str]
    prepareStatus: Json
    accessorStatus: Json
    proxyURL: NotRequired[str | None]
    operationID: NotRequired[str | None]
    generation: int
    observedGeneration: NotRequired[int | None]
    createdAt: str
    stack: NotRequired[str | None]
    reason: NotRequired[str | None]
    message: NotRequired[str | None]


class FunctionView(TypedDict):
    name: str
    namespace: str
    specName: str
    image: str
    template: NotRequired[Json]
    concurrency: int
    minWorkers: int
    maxWorkers: int
    idleTimeoutSeconds: int
    timeoutSeconds: NotRequired[int | None]
    maxAttempts: int
    ackWaitSeconds: int
    queueLimit: int
    phase: str
    workers: int
    readyWorkers: int
    generation: int
    observedGeneration: NotRequired[int | None]
    createdAt: str
    stack: NotRequired[str | None]
    reason: NotRequired[str | None]
    message: NotRequired[str | None]


class FunctionHealthView(TypedDict):
    state: str
    reason: NotRequired[str | None]
    message: NotRequired[str | None]
    workers: int
    readyWorkers: int
    waiting: NotRequired[int | None]
    running: NotRequired[int | None]


class InvocationResultView(TypedDict):
    statusCode: int
    contentType: str
    headers: NotRequired[dict[str, str]]
    body: NotRequired[Any]
    error: NotRequired[str | None]


class ColdStartView(TypedDict):
    wokenAt: NotRequired[str | None]
    claimedAt: NotRequired[str | None]
    startedAt: str
    readyAt: str


class FunctionStateView(TypedDict):
    phase: str
    reason: NotRequired[str | None]
    message: NotRequired[str | None]


class InvocationView(TypedDict):
    invocationID: str
    serverlessRequestID: str
    mode: str
    state: str
    attempts: int
    worker: NotRequired[str | None]
    functionState: NotRequired[FunctionStateView | None]
    reason: NotRequired[str | None]
    retryOf: NotRequired[str | None]
    acceptedAt: str
    queuedAt: NotRequired[str | None]
    startedAt: NotRequired[str | None]
    coldStart: NotRequired[ColdStartView | None]
    finishedAt: NotRequired[str | None]
    expiresAt: NotRequired[str | None]
    result: NotRequired[InvocationResultView | None]


class JobView(TypedDict):
    operationID: str
    type: str
    status: Literal["pending", "running", "succeeded", "failed"]
    error: NotRequired[str | None]
    objectName: str
    objectNamespace: str
    createdAt: str
    updatedAt: str


class SpecView(TypedDict):
    name: str
    cpu: str
    memory: str
    gpu: int
    gpuProduct: NotRequired[str | None]
    nodeSelector: NotRequired[dict[str, str]]
    tolerations: NotRequired[list[Json]]
    runtimeClassName: NotRequired[str | None]
    userNamespaces: NotRequired[bool]
    pricePerHour: NotRequired[str | None]


class ProductView(TypedDict):
    product: str
    nodeCount: int
    capacity: int
    allocatable: int


@final
class LivenessView(TypedDict):
    status: str


@final
class HealthView(TypedDict):
    uptimeSeconds: float
    kubernetesConnected: bool
    kubeError: NotRequired[str | None]
    nodeCount: int
    readyNodeCount: int
    stockUnitCount: int
    activeUnitCount: int
    totalGPUCapacity: int
    totalGPUAllocatable: int
    gpuProducts: list[ProductView]
    degraded: NotRequired[list[str]]
