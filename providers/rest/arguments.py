"""What a program may say, field by field as in the REST API: the types of the resources' nested arguments."""

from collections.abc import Sequence
from typing import Literal, TypedDict

import pulumi


class EnvArgs(TypedDict, total=False):
    name: pulumi.Input[str]
    value: pulumi.Input[str]


class PortArgs(TypedDict, total=False):
    name: pulumi.Input[str]
    port: pulumi.Input[int]
    protocol: pulumi.Input[Literal["TCP", "UDP", "SCTP"]]


class HttpProbeArgs(TypedDict, total=False):
    path: pulumi.Input[str]
    port: pulumi.Input[str]


class TcpProbeArgs(TypedDict, total=False):
    port: pulumi.Input[str]


class ProbeArgs(TypedDict, total=False):
    http: pulumi.Input[HttpProbeArgs]
    tcp: pulumi.Input[TcpProbeArgs]
    command: pulumi.Input[Sequence[pulumi.Input[str]]]
    initialDelaySeconds: pulumi.Input[int]
    periodSeconds: pulumi.Input[int]
    timeoutSeconds: pulumi.Input[int]
    failureThreshold: pulumi.Input[int]


class ProbesArgs(TypedDict, total=False):
    startup: pulumi.Input[ProbeArgs]
    readiness: pulumi.Input[ProbeArgs]
    liveness: pulumi.Input[ProbeArgs]


class TemplateArgs(TypedDict, total=False):
    """What runs, field by field as in the REST API."""

    command: pulumi.Input[Sequence[pulumi.Input[str]]]
    args: pulumi.Input[Sequence[pulumi.Input[str]]]
    envs: pulumi.Input[Sequence[pulumi.Input[EnvArgs]]]
    ports: pulumi.Input[Sequence[pulumi.Input[PortArgs]]]
    probes: pulumi.Input[ProbesArgs]


class AccessArgs(TypedDict, total=False):
    """Which port the unit's URLs are about, and whether the public or the tenant's other units may call it."""

    primaryPort: pulumi.Input[str]
    scheme: pulumi.Input[Literal["http", "https", "tcp"]]
    public: pulumi.Input[bool]
    tenant: pulumi.Input[bool]


class FrameworkArgs(TypedDict, total=False):
    """Where the code in the image takes its calls."""

    socketPath: pulumi.Input[str]
    invokePath: pulumi.Input[str]
    healthPath: pulumi.Input[str]


class ServerlessArgs(TypedDict, total=False):
    """The function whose calls a unit takes."""

    requestID: pulumi.Input[str]
    minAvailableCount: pulumi.Input[int]
    idleTimeoutSeconds: pulumi.Input[int]
    framework: pulumi.Input[FrameworkArgs]


class StorageMountArgs(TypedDict, total=False):
    """A storage in a unit's file system."""

    name: pulumi.Input[str]
    mountPath: pulumi.Input[str]
    readOnly: pulumi.Input[bool]


class PrepareArgs(TypedDict, total=False):
    """What a storage is filled with at first."""

    fromImage: pulumi.Input[str]
    fromStorageName: pulumi.Input[str]
    command: pulumi.Input[Sequence[pulumi.Input[str]]]
    args: pulumi.Input[Sequence[pulumi.Input[str]]]


class AccessorArgs(TypedDict, total=False):
    """The file browser of a storage."""

    enabled: pulumi.Input[bool]
