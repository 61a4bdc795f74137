"""GPUUnit: a running image with GPUs; stock in `runtime-stock`, a tenant's instance anywhere else. The model of the
object, what a tenant asks of it (the accepted request), how that becomes a GPUUnit, and how a change is merged into
one.

Recovery builds a unit from the recorded request alone, so all that the API promises is decided here.
"""

import json
import posixpath
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from gpu_platform.domain import names
from gpu_platform.domain.conditions import Condition, ObjectStatus
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import annotations_of, build_object, labels_of, request_marks
from gpu_platform.domain.specs import GPU_LIMIT, QuantityText, SpecName
from gpu_platform.domain.ssh import Ssh, SshStatus, SshWish, accept_ssh, check_ssh
from gpu_platform.domain.value import RequestError, Value, fields_of

Port = Annotated[int, Field(ge=1, le=65_535)]

PortName = Annotated[
    str,
    # As Kubernetes has it: lower-case letters, digits, single hyphens inside, and a letter somewhere.
    Field(pattern=r"^([0-9]+-)*[0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=15),
]

Words = Annotated[tuple[str, ...], Field(max_length=1_000)]
SOCKET_DIRECTORY = "/tmp/serverless-framework"  # noqa: S108 - a place that both containers share
IMAGE_LIMIT = 1_000
Image = Annotated[str, Field(min_length=1, max_length=IMAGE_LIMIT, description="The image to run.")]

TAKEN_PATHS = ("/dev/shm", SOCKET_DIRECTORY)  # noqa: S108 - places in the container, not here
"""Where the platform itself mounts something."""


class Phase(StrEnum):
    PENDING = "Pending"
    PROGRESSING = "Progressing"
    READY = "Ready"
    STOPPED = "Stopped"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class Reason(StrEnum):
    """Why the conditions Ready, SSHReady and Published are as they are."""

    UNIT_PROGRESSING = "UnitProgressing"
    UNIT_READY = "UnitReady"
    STOCK_NOT_READY = "StockNotReady"
    STOCK_READY = "StockReady"
    STOCK_CLAIMED = "StockClaimed"
    INVALID_SPEC = "InvalidSpec"
    ACCESS_CONFIG_INVALID = "AccessConfigInvalid"
    SERVERLESS_CONFIG_INVALID = "ServerlessConfigInvalid"
    SSH_CONFIG_INVALID = "SSHConfigInvalid"
    UNIT_SSH_PENDING = "UnitSSHPending"
    UNIT_SSH_READY = "UnitSSHReady"
    UNIT_SSH_FAILED = "UnitSSHFailed"
    UNIT_PUBLISHED = "UnitPublished"
    UNIT_NOT_PUBLISHED = "UnitNotPublished"
    POD_STARTUP_FAILED = "PodStartupFailed"
    UNIT_SERVICE_SYNC_FAILED = "UnitServiceSyncFailed"
    UNIT_ROUTE_SYNC_FAILED = "UnitRouteSyncFailed"
    UNIT_NETWORK_POLICY_SYNC_FAILED = "UnitNetworkPolicySyncFailed"
    UNIT_DEPLOYMENT_SYNC_FAILED = "UnitDeploymentSyncFailed"
    STORAGE_NOT_READY = "StorageNotReady"
    STORAGE_MOUNT_INVALID = "StorageMountInvalid"
    UNSCHEDULABLE = "Unschedulable"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    TERMINATING = "Terminating"


class EnvVar(Value):
    """A variable of the container's environment."""

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=256, description="Unique in the list.")
    ]
    value: Annotated[str, Field(description="Shown to whoever may read the unit: not for secrets.")] = ""


class UnitPort(Value):
    """A port that the image listens on."""

    name: Annotated[PortName, Field(description="How `access` and the probes speak of it.")]
    port: Annotated[Port, Field(description="Its number.")]
    protocol: Annotated[Literal["TCP", "UDP", "SCTP"], Field(description="What is spoken on it.")] = "TCP"


class HttpProbe(Value):
    """Well is what answers a GET with a status from 200 to 399."""

    path: Annotated[str, Field(description="What is asked for.")] = "/"
    port: Annotated[PortName, Field(description="Name of one of the ports.")]


class TcpProbe(Value):
    """Healthy while the port accepts connections."""

    port: Annotated[PortName, Field(description="Name of one of the TCP ports.")]


class Probe(Value):
    """How the container is asked for its health. Exactly one of `http`, `tcp` and `command`."""

    http: HttpProbe | None = None
    tcp: TcpProbe | None = None
    command: Annotated[
        Words | None, Field(min_length=1, description="Run in the container; well is what exits with 0.")
    ] = None
    initial_delay_seconds: Annotated[int, Field(ge=0, le=3_600, description="Before the first question.")] = 0
    period_seconds: Annotated[int, Field(ge=1, le=3_600, description="Between two questions.")] = 10
    timeout_seconds: Annotated[int, Field(ge=1, le=300, description="For one answer.")] = 1
    failure_threshold: Annotated[int, Field(ge=1, le=1_000, description="Bad answers in a row that count.")] = 3


class Probes(Value):
    """How the container's health is known. Without any, running means ready."""

    startup: Annotated[Probe | None, Field(description="Until it is well, the others wait.")] = None
    readiness: Annotated[Probe | None, Field(description="While it is not well, the unit is not Ready.")] = None
    liveness: Annotated[Probe | None, Field(description="When it is not well, the container starts anew.")] = None


class Template(Value):
    """What runs. An empty command keeps the image's own entrypoint."""

    command: Annotated[Words, Field(description="Instead of the image's entrypoint.")] = ()
    args: Annotated[Words, Field(description="Arguments of the command or entrypoint.")] = ()
    envs: Annotated[tuple[EnvVar, ...], Field(max_length=1_000, description="Environment of the container.")] = ()
    ports: Annotated[tuple[UnitPort, ...], Field(max_length=64, description="Ports of the unit's Service.")] = ()
    probes: Probes | None = None


class Access(Value):
    """Which port the unit's URLs are about; without it, the first one."""

    primary_port: Annotated[str | None, Field(description="Name of one of the template's ports.")] = None
    scheme: Annotated[Literal["http", "https", "tcp"], Field(description="First word of the access URL.")] = "http"
    public: Annotated[
        bool | None,
        Field(description="Give it an address on the internet too, where everybody can call it, without a key."),
    ] = None
    tenant: Annotated[
        bool | None, Field(description="Let the other units of its tenant call it, on all ports of the template.")
    ] = None


def why_not_public(access: Access, primary_port: UnitPort | None) -> str | None:
    """Why a unit with this access cannot have an address on the internet; None when it can."""
    if primary_port is None:
        return "the template has no ports; add one that the public can call"
    if access.scheme == "http" and primary_port.protocol == "TCP":
        return None
    spoken = access.scheme if primary_port.protocol == "TCP" else primary_port.protocol
    return f"only plain HTTP can be public, and {primary_port.name!r} speaks {spoken}"


class Framework(Value):
    """Where the code in the image takes its calls: HTTP over a Unix socket."""

    socket_path: Annotated[
        str,
        Field(
            pattern=r"^/tmp/serverless-framework/[A-Za-z0-9_.-]{1,40}$",
            description=f"A file in {SOCKET_DIRECTORY}.",
        ),
    ] = f"{SOCKET_DIRECTORY}/framework.sock"
    invoke_path: Annotated[str, Field(pattern=r"^/[!-~]{1,200}$", description="POST: run a call.")] = "/invoke"
    health_path: Annotated[str, Field(pattern=r"^/[!-~]{1,200}$", description="GET: well is what answers 200.")] = (
        "/healthz"
    )


class Serverless(Value):
    """The unit takes calls of a function. A function that does not exist is made after the unit."""

    request_id: Annotated[
        str,
        Field(
            alias="requestID",
            pattern=r"^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$",
            description="The function whose calls it takes.",
        ),
    ]
    min_available_count: Annotated[
        int, Field(ge=0, le=100, description="Workers that are always there, of a function made after the unit.")
    ] = 0
    idle_timeout_seconds: Annotated[
        int, Field(ge=1, le=86_400, description="As in a GPUFunction, of a function made after the unit.")
    ] = 300
    framework: Framework = Framework()


class StorageMount(Value):
    """A storage of the same namespace in the unit's file system. One unit at a time may mount it."""

    name: Annotated[str, Field(min_length=1, max_length=40, description="Name of the GPUStorage; unique in the list.")]
    mount_path: Annotated[
        str,
        Field(
            min_length=1, max_length=1_000, description="Absolute path of a directory; not `/`, and unique in the list."
        ),
    ]
    read_only: Annotated[bool, Field(description="Whether the unit may only read it.")] = False


StorageMounts = Annotated[
    tuple[StorageMount, ...], Field(max_length=32, description="Storages that the unit works with.")
]


class GPUUnitSpec(Value):
    """What the unit is to be. Its size is fixed: it holds the GPUs of the stock that it was made from."""

    spec_name: SpecName
    image: Annotated[str | None, Field(description="Without one, a placeholder that only holds the GPUs.")] = None
    memory: Annotated[QuantityText | None, Field(description="A quantity; by default the spec's.")] = None
    gpu: Annotated[int | None, Field(ge=0, le=GPU_LIMIT, description="GPUs; by default the spec's.")] = None
    template: Template = Template()
    access: Access | None = None
    serverless: Serverless | None = None
    ssh: Ssh | None = None
    storage_mounts: StorageMounts = ()
    running: Annotated[bool, Field(description="False frees the GPUs and keeps the unit.")] = True
    restarts: Annotated[
        int, Field(ge=0, le=1_000_000, description="How often a restart was asked for: one more starts it anew.")
    ] = 0

    @property
    def primary_port(self) -> UnitPort | None:
        """The port that its URLs are about; None when it has none, or not the one that it names."""
        wanted = self.access.primary_port if self.access else None
        return next((port for port in self.template.ports if wanted in (None, port.name)), None)


class GPUUnitStatus(ObjectStatus):
    """What the unit is."""

    phase: Annotated[Phase | None, Field(description="The state in one word; the condition Ready says why.")] = None
    ready_replicas: Annotated[int, Field(description="1 when the unit's pod is ready.")] = 0
    observed_generation: Annotated[int | None, Field(description="Generation of the spec that was looked at.")] = None
    last_sync_time: Annotated[datetime | None, Field(description="When this status was last written.")] = None
    node_name: Annotated[str | None, Field(description="Where the unit's pod runs.")] = None
    service_name: Annotated[str | None, Field(description="The Service in front of the unit's ports.")] = None
    access_url: Annotated[str | None, Field(alias="accessURL", description="Where the unit answers.")] = None
    public_url: Annotated[
        str | None, Field(alias="publicURL", description="Where everybody can call the unit; only while that works.")
    ] = None
    ssh: SshStatus | None = None
    conditions: Annotated[
        tuple[Condition, ...],
        Field(description="Ready; of one with SSH also SSHReady, of a public one Published: why or why not."),
    ] = ()


class UnitFields(Value):
    """The fields of a request for a unit that its spec keeps as they are: a field that is added here is accepted and
    recorded."""

    image: Image
    template: Template = Template()
    access: Access | None = None
    serverless: Serverless | None = None
    storage_mounts: StorageMounts = ()


class UnitRequest(UnitFields):
    """A create request after all checks that need no look-up: what is hashed and recorded."""

    name: str
    spec_name: SpecName
    ssh: Ssh | None = None
    stock_name: str | None = None


class UnitChange(Value):
    """A change of a unit. What is not said stays."""

    image: Image | None = None
    template: Template | None = None
    access: Access | None = None
    serverless: Annotated[
        Serverless | None,
        Field(
            description="Replaced as a whole. It cannot be taken away: stop the unit, or give it back and rent another."
        ),
    ] = None
    ssh: SshWish | None = None
    storage_mounts: StorageMounts | None = None


def normalise_request(request: UnitRequest) -> UnitRequest:
    """The request with its defaults said; RequestError for what the schema alone cannot see."""
    if not names.is_unit_name(request.name):
        raise RequestError("name", names.UNIT_NAME_RULE)
    check_template(request.template)
    check_serverless(request.serverless)
    return request.model_copy(
        update={
            "access": normalise_access(request.template, request.access),
            "ssh": normalise_ssh(request.template, request.ssh),
            "storage_mounts": normalise_mounts(request.storage_mounts),
        }
    )


def check_template(template: Template) -> None:
    _refuse_twice("template.envs", "name", [env.name for env in template.envs])
    _refuse_twice("template.ports", "name", [port.name for port in template.ports])
    _refuse_twice("template.ports", "port", [port.port for port in template.ports])
    protocols = {port.name: port.protocol for port in template.ports}
    for kind in ("startup", "readiness", "liveness"):
        probe: Probe | None = getattr(template.probes, kind, None)
        if probe is not None:
            _check_probe(f"template.probes.{kind}", probe, protocols)


def _check_probe(place: str, probe: Probe, protocols: Mapping[str, str]) -> None:
    if sum(way is not None for way in (probe.http, probe.tcp, probe.command)) != 1:
        raise RequestError(place, "should have exactly one of `http`, `tcp` and `command`")
    for way, port in (("http", probe.http and probe.http.port), ("tcp", probe.tcp and probe.tcp.port)):
        if port is not None and port not in protocols:
            raise RequestError(f"{place}.{way}.port", f"{port!r} is no port of the template")
    if probe.tcp is not None and (protocol := protocols[probe.tcp.port]) != "TCP":
        raise RequestError(f"{place}.tcp.port", f"{probe.tcp.port!r} is a port for {protocol}; name one for TCP")


def check_framework(framework: Framework, place: str) -> None:
    if framework.socket_path.rpartition("/")[2] in (".", ".."):
        raise RequestError(f"{place}.socketPath", f"should name a file, such as {Framework().socket_path}")


def check_serverless(serverless: Serverless | None) -> None:
    if serverless is not None:
        check_framework(serverless.framework, "serverless.framework")


Spec = TypeVar("Spec", UnitRequest, GPUUnitSpec)


def with_token_hash(spec: Spec, token_hash: str) -> Spec:
    """Returns the request or the spec of a unit that has SSH, with this digest of the FRP token."""
    ssh = spec.ssh
    return spec.model_copy(update={"ssh": ssh and ssh.model_copy(update={"token_hash": token_hash})})


def normalise_ssh(template: Template, ssh: Ssh | None) -> Ssh | None:
    """None for a block that is not enabled."""
    if ssh is None or not ssh.enabled:
        return None
    checked = check_ssh(ssh)
    if any(port.port == ssh.port for port in template.ports):
        raise RequestError("ssh.port", f"{ssh.port} is a port of the template; choose another")
    return checked


def normalise_mounts(mounts: tuple[StorageMount, ...]) -> tuple[StorageMount, ...]:
    """The mounts with clean paths, by name; RequestError for what cannot be mounted."""
    for index, mount in enumerate(mounts):
        if not names.is_unit_name(mount.name):
            raise RequestError(f"storageMounts[{index}].name", names.UNIT_NAME_RULE)
        _check_mount_path(f"storageMounts[{index}].mountPath", mount.mount_path)
    clean = [mount.model_copy(update={"mount_path": clean_path(mount.mount_path)}) for mount in mounts]
    _refuse_twice("storageMounts", "name", [mount.name for mount in clean])
    _refuse_twice("storageMounts", "mountPath", [mount.mount_path for mount in clean])
    return tuple(sorted(clean, key=lambda mount: mount.name))


def clean_path(path: str) -> str:
    # Two slashes at the start mean something to POSIX, and nothing here.
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _check_mount_path(place: str, path: str) -> None:
    if not path.startswith("/"):
        raise RequestError(place, f"{path!r} should be an absolute path, such as /data")
    if ":" in path or not path.isprintable():
        raise RequestError(place, "should have neither colons nor control characters")
    clean = clean_path(path)
    if clean == "/":
        raise RequestError(place, "should be a directory below `/`, such as /data")
    if clean in TAKEN_PATHS:
        raise RequestError(place, f"{clean} is taken by the platform; choose another directory")


def normalise_access(template: Template, access: Access | None) -> Access | None:
    """The access with its primary port named: the first one where none was chosen, none where there are no ports."""
    ports = [port.name for port in template.ports]
    chosen = access.primary_port if access else None
    if chosen is not None and chosen not in ports:
        there = f"it has {', '.join(ports)}" if ports else "it has none"
        raise RequestError("access.primaryPort", f"{chosen!r} is no port of the template; {there}")
    access = (access or Access()).model_copy(update={"primary_port": chosen or next(iter(ports), None)})
    port = next((port for port in template.ports if port.name == access.primary_port), None)
    if access.public and (reason := why_not_public(access, port)):
        raise RequestError("access.public", reason)
    if access.tenant and not ports:
        raise RequestError("access.tenant", "the template has no ports; add one that your other units can call")
    return access if ports else None


def merge_change(spec: GPUUnitSpec, change: UnitChange) -> GPUUnitSpec:
    """The spec after the change.

    | field      | rule                                                                                      |
    | ---------- | ----------------------------------------------------------------------------------------- |
    | image      | replaced when given                                                                       |
    | template   | replaced as a whole when given with at least one of its lists or probes; empty: unchanged |
    | access     | replaced when given; else, when its port is gone with the template, the first port        |
    | serverless | replaced as a whole when given                                                            |
    | ssh        | replaced as a whole when given, but for a token that is not said; disabled: gone          |
    | storages   | replaced as a whole when given; an empty list unmounts                                    |
    """
    template = change.template if change.template is not None and change.template != Template() else spec.template
    check_template(template)
    check_serverless(change.serverless)
    mounts = change.storage_mounts
    access = change.access
    if access is None:
        ports = [port.name for port in template.ports]
        is_kept = spec.access is not None and spec.access.primary_port in ports
        scheme = {"scheme": spec.access.scheme} if spec.access else {}
        access = spec.access if is_kept else Access.model_validate(scheme)
    return spec.model_copy(
        update={
            "image": change.image or spec.image,
            "template": template,
            "access": normalise_access(template, access),
            "serverless": change.serverless or spec.serverless,
            "ssh": normalise_ssh(template, accept_ssh(change.ssh, spec.ssh)),
            "storage_mounts": spec.storage_mounts if mounts is None else normalise_mounts(mounts),
        }
    )


def build_unit(request: UnitRequest, namespace: str, stock: Json, operation_id: str, request_hash: str) -> Json:
    """The unit that takes over this claimed stock: its size, the caller's image."""
    spec = GPUUnitSpec(
        **fields_of(request, UnitFields),
        spec_name=request.spec_name,
        memory=stock["spec"].get("memory"),
        gpu=stock["spec"].get("gpu"),
        ssh=request.ssh,
    )
    annotations = {**accepted_annotations(spec, operation_id, request_hash), **source_annotations(stock)}
    return build_object("GPUUnit", request.name, namespace, spec, labels=source_labels(stock), annotations=annotations)


def build_started(unit: Json, stock: Json) -> Json:
    """The stopped unit, running again in the place of this claimed stock."""
    labels = {key: value for key, value in labels_of(unit).items() if key != names.LABEL_POOL}
    started = {
        **unit,
        "metadata": {
            **unit["metadata"],
            "labels": {**labels, **source_labels(stock)},
            "annotations": {**annotations_of(unit), **source_annotations(stock)},
        },
    }
    spec = GPUUnitSpec.model_validate(unit["spec"]).model_copy(update={"running": True})
    return with_accepted_spec(started, spec)


def with_accepted_spec(item: Json, spec: Value) -> Json:
    """The object with this spec, accepted by the API: spec and `accepted-spec` change in one write."""
    annotations = {**annotations_of(item), names.ANNOTATION_ACCEPTED_SPEC: accepted_text(spec)}
    return {**item, "metadata": {**item["metadata"], "annotations": annotations}, "spec": spec.to_json()}


def accepted_text(spec: Value) -> str:
    """The `accepted-spec` annotation: one text for one spec."""
    return json.dumps(spec.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def accepted_annotations(spec: Value, operation_id: str, request_hash: str) -> dict[str, str]:
    """Of an object that the API accepted: the request that it was created for, and its spec."""
    return {**request_marks(operation_id, request_hash), names.ANNOTATION_ACCEPTED_SPEC: accepted_text(spec)}


def source_annotations(stock: Json) -> dict[str, str]:
    return {
        names.ANNOTATION_SOURCE_STOCK_NAME: stock["metadata"]["name"],
        names.ANNOTATION_SOURCE_STOCK_NAMESPACE: stock["metadata"]["namespace"],
        names.ANNOTATION_SOURCE_STOCK_UID: stock["metadata"]["uid"],
    }


def source_labels(stock: Json) -> dict[str, str]:
    """The pool, so that it knows its unit is gone when it is."""
    pool = labels_of(stock).get(names.LABEL_POOL)
    managed = {names.LABEL_MANAGED_BY: names.MANAGED_BY_VALUE}
    return {**managed, names.LABEL_POOL: pool} if pool else managed


def _refuse_twice(place: str, key: str, values: Iterable[object]) -> None:
    seen: set[object] = set()
    for index, value in enumerate(values):
        if value in seen:
            raise RequestError(f"{place}[{index}].{key}", f"{value!r} is there twice; each one should be unique")
        seen.add(value)
