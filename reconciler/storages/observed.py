"""What one pass knows about a storage: the values between `observe` and `plan`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpu_platform.domain.gpu_storages import GPUStorageSpec
from gpu_platform.domain.mount_holds import Hold

Json = dict[str, Any]


class ChildKind(StrEnum):
    """In the order in which they are made: no pod may ever run without the policy."""

    CLAIM = "PersistentVolumeClaim"
    NETWORK_POLICY = "NetworkPolicy"
    JOB = "Job"
    SERVICE = "Service"
    DEPLOYMENT = "Deployment"
    POD = "Pod"
    """Made by others; removed where those left it."""


@dataclass(frozen=True)
class Observed:
    storage: Json
    spec: GPUStorageSpec | None
    """None: it does not fit the schema of this version."""

    hold: Hold | None
    is_unit_running: bool
    """Whether the unit that mounts it is to run."""

    claim: Json | None
    binds_late: bool
    """Its class waits for the first pod before it makes a volume."""

    jobs: tuple[Json, ...]
    """Of this very storage, newest preparation or not."""

    network_policy: Json | None
    service: Json | None
    deployment: Json | None
    pods: tuple[Json, ...]
    """What prepares it and what shows it."""

    source: Json | None
    """The storage that it is to be a copy of."""

    restricted: bool
    has_class: bool = True
    """The class of its claim is there."""

    away: Mapping[str, str] = field(default_factory=dict)
    """The nodes of its pods that are not Ready, and why."""

    def live(self, kind: ChildKind) -> tuple[Json, ...]:
        match kind:
            case ChildKind.CLAIM:
                found = (self.claim,)
            case ChildKind.JOB:
                return self.jobs
            case ChildKind.POD:
                return self.pods
            case ChildKind.NETWORK_POLICY:
                found = (self.network_policy,)
            case ChildKind.SERVICE:
                found = (self.service,)
            case ChildKind.DEPLOYMENT:
                found = (self.deployment,)
        return tuple(item for item in found if item is not None)
