"""What one pass knows about a function: the values between `observe` and `plan`."""

from dataclasses import dataclass
from typing import Any

from gpu_platform.domain.gpu_functions import GPUFunctionSpec

Json = dict[str, Any]


@dataclass(frozen=True)
class Observed:
    function: Json
    spec: GPUFunctionSpec | None
    """None: it does not fit the schema of this version."""

    is_known_spec: bool
    """The catalogue has an entry of the spec's name."""

    own: tuple[Json, ...]
    """The units that this very function made."""

    joined: tuple[Json, ...]
    """Other units that take its calls."""

    strangers: tuple[Json, ...]
    """Units that are neither, in its namespace: one of them may have a worker's name."""

    held: tuple[Json, ...]
    """Stock that is claimed for one of its workers."""

    free: tuple[Json, ...]
    """Stock that a claim may take, in the order to try it."""

    setup_problem: str | None = None
    """Why no worker could take a call, however long it waits: what whoever set the platform up has to mend."""
