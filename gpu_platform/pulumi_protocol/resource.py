"""What requests and answers say about one resource, what can go wrong with it, and waiting until it is ready."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gpu_platform.clock import wait_at_most
from gpu_platform.kube import KubeError, UnreachableError
from gpu_platform.pulumi_protocol.properties import Change, Path, Properties

REPEATED_NAME = re.compile(r'^\S+ "[^"]*" is invalid: ')
"""With which the API server begins a refusal; the line has said it already."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
Report = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class Resource:
    """What every request says about the resource that it is for."""

    urn: str
    token: str
    timeout_seconds: float = 0.0
    """From the program's custom timeouts; 0 means that it has none."""

    @property
    def name(self) -> str:
        return self.urn.rpartition("::")[2]

    @property
    def stack(self) -> str:
        return self.urn.split("::")[0].removeprefix("urn:pulumi:")

    @property
    def project(self) -> str:
        return self.urn.split("::")[1]


@dataclass(frozen=True)
class Failure:
    """What is wrong with one input."""

    property: str
    reason: str


@dataclass(frozen=True)
class Difference:
    changes: dict[Path, Change]
    replacing: frozenset[Path] = frozenset()
    delete_first: bool = False


@dataclass(frozen=True)
class Observed:
    """An object as it is now, in Pulumi's terms."""

    id: str
    outputs: Properties
    inputs: Properties


def resource_of(request: Any) -> Resource:
    # Older engines send only the URN: urn:pulumi:<stack>::<project>::<parents>$<type>::<name>.
    token = getattr(request, "type", "") or request.urn.split("::")[2].rpartition("$")[2]
    return Resource(request.urn, token, float(getattr(request, "timeout", 0.0)))


class ResourceFailedError(Exception):
    """An operation on a resource that did not come about."""


class NotReadyError(ResourceFailedError):
    """The object exists, but does not do its work in time."""


class IncompleteError(ResourceFailedError):
    """The object exists and Pulumi must remember it, but it did not become ready."""

    def __init__(self, message: str, observed: Observed) -> None:
        super().__init__(message)
        self.observed = observed


def describe(error: KubeError, name: str, server: str) -> str:
    """`name` is the object's, with its kind; or only the kind, where the question was about that as a whole."""
    message = " ".join(error.message.split())
    if isinstance(error, UnreachableError):
        return f"{name}: the API server {server} cannot be reached: {message}"
    return f"{name}: {REPEATED_NAME.sub('', message)} ({error.reason})"


@dataclass(frozen=True)
class Patience:
    """How long to wait, who is told meanwhile, and what ends it early."""

    seconds: float
    report: Report
    cancelled: asyncio.Event


@dataclass(frozen=True)
class Verdict:
    ready: bool
    reason: str = ""
    hopeless: bool = False
    """Waiting longer would change nothing."""


READY = Verdict(ready=True)


async def wait_until(
    look: Callable[[], Awaitable[Verdict]], patience: Patience, what: str, failure: type[ResourceFailedError]
) -> None:
    """`what` is said of it while it is not so: `Namespace shop is not gone`."""
    clock = asyncio.get_running_loop().time
    deadline, pause, said = clock() + patience.seconds, FIRST_PAUSE, ""
    while not (verdict := await look()).ready:
        if verdict.hopeless:
            raise failure(f"{what}: {verdict.reason}")
        if patience.cancelled.is_set():
            raise failure(f"{what}, and the update was cancelled: {verdict.reason}")
        if clock() > deadline:
            raise failure(f"{what} after {patience.seconds:.0f} s: {verdict.reason}")
        if verdict.reason != said:
            said = verdict.reason
            await patience.report(f"waiting: {said}")
        await wait_at_most(pause, patience.cancelled)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    if said:
        await patience.report("")
