"""What a unit that takes calls has besides: the sidecar, the socket between the two, and a way to NATS. Pure.

```
 NATS ◄── sidecar (credentials) ◄── socket ──► main container (the user's code)
```

The sidecar is a native one: it starts first and does not wait for the main container, and it is ended last. Before the
main container is told to end, its `preStop` hook asks the sidecar to take no more calls, and waits for those under way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from urllib.parse import urlsplit

from gpu_platform.domain import names
from gpu_platform.domain.functions import GPUFunctionSpec
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import build_peer
from gpu_platform.domain.tenants import tenant_of
from gpu_platform.domain.units import SOCKET_DIRECTORY, GPUUnitSpec, Serverless
from reconciler.child_diff import POD_IP
from reconciler.isolation import NOBODY, build_empty_dir, build_helper_resources, build_helper_security_context

SIDECAR = "serverless-sidecar"
SOCKET_VOLUME = "serverless-framework-socket"
SOCKET_VOLUME_LIMIT = "16Mi"
CREDENTIALS_VOLUME = "serverless-credentials"
CREDENTIALS_DIRECTORY = "/etc/gpu-platform-nats"
CREDENTIALS_FILE, AUTHORITY_FILE = "nats.creds", "ca.crt"
FILE_MODE = 0o440

SOCKET_VARIABLE = "SERVERLESS_SOCKET"
HEALTH_PORT = 8091
NATS_PORT = 4222

IN_CLUSTER = (".svc", ".svc.cluster.local")


@dataclass(frozen=True)
class Egress:
    """The one hole to NATS: to the pods with these labels, or to a network."""

    port: int
    namespace: str = names.SYSTEM_NAMESPACE
    labels: tuple[tuple[str, str], ...] = ()
    cidr: str | None = None

    def to_rule(self) -> Json:
        is_outside = self.cidr is not None
        peer = {"ipBlock": {"cidr": self.cidr}} if is_outside else build_peer(self.namespace, dict(self.labels))
        return {"to": [peer], "ports": [{"protocol": "TCP", "port": self.port}]}


@dataclass(frozen=True)
class SidecarSettings:
    nats_url: str
    egress: Egress | None
    """None: the way is open, as to the rest of the internet."""

    image: str
    command: tuple[str, ...]
    result_retention: timedelta
    grace: timedelta
    """For the calls under way when the unit ends."""

    has_credentials: bool = False
    has_authority: bool = False
    problem: str | None = None
    """What is missing before any unit can take calls."""


LIMITS = ("concurrency", "max_attempts", "ack_wait_seconds")
VARIABLE = "GPU_PLATFORM_SIDECAR_"
"""How the names of the sidecar's variables begin."""


@dataclass(frozen=True)
class WorkerBuild:
    """Everything that the sidecar of one unit is made of."""

    settings: SidecarSettings
    tenant: str
    unit: str
    block: Serverless
    limits: Mapping[str, int]
    """Of the function, by their names in its spec."""

    woken_at: datetime | None = None
    claimed_at: datetime | None = None
    """How it came, if calls brought it: the sidecar writes it into the records of those."""

    @property
    def inputs(self) -> Json:
        """What of it is the function's, without defaults: a change of it restarts the worker."""
        return {name: value for name, value in self.limits.items() if value != _default_of(name)}

    @property
    def limit_variables(self) -> dict[str, str]:
        return {name.upper(): str(value) for name, value in self.limits.items()}


def find_egress(
    url: str, namespace: str | None, labels: tuple[tuple[str, str], ...], cidr: str | None
) -> tuple[Egress | None, str | None]:
    """The hole that units need to reach this address, or why it cannot be known."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or NATS_PORT
    inside = next((host.removesuffix(suffix) for suffix in IN_CLUSTER if host.endswith(suffix)), None)
    if labels:
        _, _, found = (inside or "").partition(".")
        return Egress(port, namespace or found or names.SYSTEM_NAMESPACE, labels), None
    if cidr is not None:
        return Egress(port, cidr=cidr), None
    if inside is not None:
        return None, f"{host} is a Service of the cluster: natsEgressLabels has to say which pods are behind it"
    try:
        address = ip_address(host)
    except ValueError:
        return None, None
    return Egress(port, cidr=f"{address}/{address.max_prefixlen}"), None


def find_serverless_problem(spec: GPUUnitSpec, namespace: str, settings: SidecarSettings | None) -> str | None:
    """Why a unit cannot take calls, in words that say what to mend."""
    if spec.serverless is None or names.is_stock_namespace(namespace):
        return None
    if settings is None:
        return (
            "spec.serverless: NATS is not configured, so there are no calls to take; the reconciler's natsURL is empty"
        )
    if settings.problem is not None:
        return f"spec.serverless: {settings.problem}"
    if tenant_of(namespace) is None:
        return f"spec.serverless: units that take calls live in the namespaces of tenants, and {namespace} is none"
    if any(port.port == HEALTH_PORT for port in spec.template.ports):
        return f"spec.template.ports: {HEALTH_PORT} is the port of the sidecar; choose another"
    return None


def plan_worker(
    spec: GPUUnitSpec,
    namespace: str,
    unit: str,
    function: GPUFunctionSpec | None,
    settings: SidecarSettings | None,
    *,
    woken_at: datetime | None = None,
    claimed_at: datetime | None = None,
) -> WorkerBuild | None:
    """None for a unit that takes no calls. A function that does not exist yet will be made with the same defaults."""
    tenant = tenant_of(namespace)
    if spec.serverless is None or settings is None or tenant is None:
        return None
    return WorkerBuild(
        settings=settings,
        tenant=tenant,
        unit=unit,
        block=spec.serverless,
        limits={name: getattr(function, name) if function else _default_of(name) for name in LIMITS},
        woken_at=woken_at,
        claimed_at=claimed_at,
    )


def with_sidecar(pod: Json, worker: WorkerBuild) -> Json:
    """The pod, and beside its one container the sidecar."""
    [main] = pod["containers"]
    socket = {"name": SOCKET_VOLUME, "mountPath": SOCKET_DIRECTORY}
    told = {"name": SOCKET_VARIABLE, "value": worker.block.framework.socket_path}
    env = [variable for variable in main["env"] if variable["name"] != SOCKET_VARIABLE]
    main = {
        **main,
        "env": [*env, told],
        "volumeMounts": [*main["volumeMounts"], socket],
        "lifecycle": {"preStop": {"httpGet": {"path": "/drain", "port": HEALTH_PORT, "scheme": "HTTP"}}},
    }
    volumes = [*pod["volumes"], {"name": SOCKET_VOLUME, **build_empty_dir(SOCKET_VOLUME_LIMIT)}]
    if _has_secret(worker.settings):
        secret = {"secretName": names.function_secret(worker.block.request_id), "defaultMode": FILE_MODE}
        volumes.append({"name": CREDENTIALS_VOLUME, "secret": secret})
    return {
        **pod,
        "terminationGracePeriodSeconds": int(worker.settings.grace.total_seconds()),
        # Of the socket and the credentials: the user's image may run as any user, and the sidecar speaks to it.
        "securityContext": {**pod["securityContext"], "fsGroup": NOBODY},
        "initContainers": [_sidecar(worker, socket)],
        "containers": [main],
        "volumes": volumes,
    }


def _sidecar(worker: WorkerBuild, socket: Json) -> Json:
    mounts = [socket]
    if _has_secret(worker.settings):
        mounts.append({"name": CREDENTIALS_VOLUME, "mountPath": CREDENTIALS_DIRECTORY, "readOnly": True})
    return {
        "name": SIDECAR,
        "image": worker.settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(worker.settings.command),
        "env": _environment(worker),
        # No startup probe: the main container would wait for it, and it waits for the main container.
        "restartPolicy": "Always",
        "readinessProbe": _probe("/readyz", period=1),
        "livenessProbe": _probe("/healthz", period=10),
        "resources": build_helper_resources(cpu="1", memory="512Mi"),
        "securityContext": build_helper_security_context(),
        "volumeMounts": mounts,
    }


def _environment(worker: WorkerBuild) -> list[Json]:
    settings, framework = worker.settings, worker.block.framework
    said = {
        "NATS_URL": settings.nats_url,
        **({"NATS_CREDENTIALS": f"{CREDENTIALS_DIRECTORY}/{CREDENTIALS_FILE}"} if settings.has_credentials else {}),
        **({"NATS_CA": f"{CREDENTIALS_DIRECTORY}/{AUTHORITY_FILE}"} if settings.has_authority else {}),
        "TENANT": worker.tenant,
        "FUNCTION": worker.block.request_id,
        "WORKER": worker.unit,
        "SOCKET": framework.socket_path,
        # A `$` would be read as the beginning of a variable.
        "INVOKE_PATH": framework.invoke_path.replace("$", "$$"),
        "HEALTH_PATH": framework.health_path.replace("$", "$$"),
        **worker.limit_variables,
        "RESULT_RETENTION_SECONDS": str(int(settings.result_retention.total_seconds())),
        "HEALTH_HOST": "$(POD_IP)",
        "HEALTH_PORT": str(HEALTH_PORT),
        **({"WOKEN_AT": worker.woken_at.isoformat()} if worker.woken_at else {}),
        **({"CLAIMED_AT": worker.claimed_at.isoformat()} if worker.claimed_at else {}),
    }
    return [POD_IP, *({"name": f"{VARIABLE}{name}", "value": value} for name, value in said.items())]


def _default_of(limit: str) -> int:
    default: int = GPUFunctionSpec.model_fields[limit].default
    return default


def is_made_for_function(worker: WorkerBuild | None, deployment: Json | None) -> bool:
    """Whether the sidecar in a Deployment has the limits of its function; true of a unit that takes no calls."""
    if worker is None or deployment is None:
        return True
    pod = deployment["spec"]["template"]["spec"]
    containers = (*(pod.get("initContainers") or ()), *pod["containers"])
    there = {variable["name"]: variable.get("value") for each in containers for variable in each.get("env") or ()}
    return all(there.get(f"{VARIABLE}{name}") == value for name, value in worker.limit_variables.items())


def _probe(path: str, period: int) -> Json:
    return {
        "httpGet": {"path": path, "port": HEALTH_PORT, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": 3,
    }


def _has_secret(settings: SidecarSettings) -> bool:
    return settings.has_credentials or settings.has_authority
