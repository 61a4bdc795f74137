"""What requests and answers say about one resource."""

from dataclasses import dataclass
from typing import Any

from gpu_platform.pulumi_protocol.properties import Path, Properties
from providers.protocol.diffing import Change


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
