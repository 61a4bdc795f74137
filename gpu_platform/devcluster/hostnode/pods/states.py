"""What a container is in. Frozen values: `transitions` makes the next one, `plan` and `status` read them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpu_platform.kube.client import Json


@dataclass(frozen=True)
class Waiting:
    reason: str
    message: str = ""
    due_at: datetime | None = None
    """When to try again; `None` for one that was never tried and may start as soon as its turn comes."""


@dataclass(frozen=True)
class Stopping:
    since: datetime
    grace: timedelta
    killed: bool = False


@dataclass(frozen=True)
class Running:
    started_at: datetime
    process: int
    started: bool
    """The startup probe has passed, or there is none."""
    ready: bool
    failure: str | None = None
    """Why a probe wants it ended."""
    stopping: Stopping | None = None


@dataclass(frozen=True)
class Terminated:
    """The end of one attempt. As a container's state it is final; one that comes back is `Waiting`."""

    exit_code: int
    reason: str
    message: str
    started_at: datetime
    finished_at: datetime
    process: int


@dataclass(frozen=True)
class Container:
    name: str
    state: Waiting | Running | Terminated
    last: Terminated | None = None
    """The attempt before the one that the state is about."""
    attempt: int = 0
    """Number of the newest attempt, and so the restart count."""
    crashes: int = 0
    """Ends in a row without a long run between them."""

    @property
    def was_started(self) -> bool:
        return self.last is not None or not isinstance(self.state, Waiting)

    @property
    def has_succeeded(self) -> bool:
        return isinstance(self.state, Terminated) and self.state.exit_code == 0


Containers = dict[str, Container]


def init_specs(pod: Json) -> list[Json]:
    return pod["spec"].get("initContainers") or []


def main_specs(pod: Json) -> list[Json]:
    specs: list[Json] = pod["spec"]["containers"]
    return specs


def is_sidecar(spec: Json) -> bool:
    """Of an init container: it keeps running beside the main ones."""
    return spec.get("restartPolicy") == "Always"


def has_passed(spec: Json, container: Container) -> bool:
    """Of an init container: the next one may start."""
    if is_sidecar(spec):
        return isinstance(container.state, Running) and container.state.started
    return container.has_succeeded
