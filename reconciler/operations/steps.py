"""The steps that can be taken about an operation, and what one pass decides: the values between `plan` and `apply`."""

from dataclasses import dataclass
from datetime import timedelta

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.operations import FINAL_PHASES, OperationStatus


@dataclass(frozen=True)
class ReleaseClaims:
    claims: tuple[Json, ...]


@dataclass(frozen=True)
class CreateUnit:
    body: Json


@dataclass(frozen=True)
class StartUnit:
    body: Json


@dataclass(frozen=True)
class DeleteUnit:
    unit: Json


@dataclass(frozen=True)
class DeletePool:
    pool: Json


@dataclass(frozen=True)
class DeleteFunction:
    function: Json


@dataclass(frozen=True)
class DeleteStorage:
    """Only as it was seen: a hold that came in between wins."""

    storage: Json


@dataclass(frozen=True)
class CreateSpec:
    body: Json


@dataclass(frozen=True)
class CreatePool:
    body: Json


@dataclass(frozen=True)
class WriteStatus:
    status: OperationStatus


@dataclass(frozen=True)
class TrimRequest:
    """Its end keeps the request's hash only."""


@dataclass(frozen=True)
class RemoveOperation:
    pass


Step = (
    ReleaseClaims
    | CreateUnit
    | StartUnit
    | DeleteUnit
    | DeletePool
    | DeleteFunction
    | DeleteStorage
    | CreateSpec
    | CreatePool
    | WriteStatus
    | TrimRequest
    | RemoveOperation
)


@dataclass(frozen=True)
class Plan:
    step: Step | None = None
    wait: timedelta | None = None
    """Without a step: when to look again. None: a change of its object brings the next look."""

    why: str = ""

    @property
    def is_last(self) -> bool:
        """No further step follows from this one, until something changes."""
        match self.step:
            case None | RemoveOperation() | TrimRequest():
                return True
            case WriteStatus(status):
                return status.phase in FINAL_PHASES
        return False
