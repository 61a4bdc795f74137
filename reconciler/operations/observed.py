"""What one pass knows about an operation: the values between `observe` and `plan`."""

from dataclasses import dataclass
from typing import Any

from gpu_platform.domain import names
from gpu_platform.domain.operations import OperationKind, OperationSpec, OperationStatus
from gpu_platform.domain.stock import Claim

Json = dict[str, Any]

JOBS = (OperationKind.SEED_STOCK_UNITS, OperationKind.CREATE_STOCK_POOL)
DELETIONS = (
    OperationKind.DELETE_UNIT,
    OperationKind.DELETE_STOCK_POOL,
    OperationKind.DELETE_FUNCTION,
    OperationKind.DELETE_STORAGE,
)
OF_STOCK = (*JOBS, OperationKind.DELETE_STOCK_POOL)
"""About pools, which live with the stock."""

OF_FUNCTIONS = (OperationKind.CREATE_FUNCTION, OperationKind.DELETE_FUNCTION)
OF_STORAGES = (OperationKind.CREATE_STORAGE, OperationKind.RECOVER_STORAGE, OperationKind.DELETE_STORAGE)


@dataclass(frozen=True)
class Record:
    """An Operation, read."""

    item: Json
    """As it was seen: every write on it is guarded by its uid and resourceVersion."""

    spec: OperationSpec
    status: OperationStatus

    @property
    def name(self) -> str:
        return str(self.item["metadata"]["name"])

    @property
    def claim(self) -> Claim:
        """The claim by which it holds stock. The namespace is the Operation's own, whatever its spec says: a name that
        is also another tenant's Operation holds nothing of that tenant."""
        return Claim(names.claim_holder(self.item["metadata"]["namespace"], self.spec.target.name), self.name)

    @property
    def object_uid(self) -> str | None:
        """The very object that it is about, once that is known."""
        return self.status.target_uid or self.spec.target.uid


@dataclass(frozen=True)
class Observed:
    """Of an operation that is not at its end, and due: asked of the API server itself in this pass. A cache may be
    behind, and from what it does not show yet nothing must be made a second time or be given up."""

    record: Record
    object_exists: bool = False
    """Of an operation at its end: whether the object still stands that it is about."""

    unit: Json | None = None
    """Whatever has the name of its target."""

    claims: tuple[Json, ...] = ()
    """The stock that it holds."""

    catalogue: Json | None = None
    """Of a job: the GPUSpec."""

    pool: Json | None = None
    """Of one about a pool: whatever has the name of its pool."""

    function: Json | None = None
    """Of one about a function: whatever has the name of its function."""

    storage: Json | None = None
    """Of one about a storage: whatever has the name of its storage."""

    refusal: str | None = None
    """In the API server's words: why it will never accept what was tried in this pass."""
