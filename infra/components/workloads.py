"""Our own processes: a Deployment each, with all that belongs to it, and what makes them clients of NATS."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.rbac import API_ACCOUNT, RECONCILER_ACCOUNT, STACK_WORKER_ACCOUNT
from infra.components.namespaces import build_default_deny
from infra.components.nats import NAME, nats_url
from infra.objects import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    app_labels,
    build_amounts,
    build_api_policy,
    build_metadata,
    build_metrics_policy,
    declare,
    name_of,
)
from infra.sections import (
    API_ADDRESS,
    API_METRICS_ADDRESS,
    API_PROBE_ADDRESS,
    METRICS_ADDRESS,
    PASSPHRASE_DIRECTORY,
    PROBE_ADDRESS,
    STACK_METRICS_ADDRESS,
    STACK_PROBE_ADDRESS,
    Amounts,
    Nats,
    Placement,
    StackWorker,
    Workloads,
    port_of,
    render_settings,
)

CREDENTIALS_DIRECTORY = "/etc/gpu-platform-nats"
AUTHORITY_DIRECTORY = "/etc/gpu-platform-nats-ca"

ENOUGH_REPLICAS = 3
"""Of a stream. More servers share the streams, and do not each have them all."""

API = API_ACCOUNT
SERVICE_MONITOR = ("monitoring.coreos.com/v1", "ServiceMonitor")
RECONCILER = RECONCILER_ACCOUNT
STACK_WORKER = STACK_WORKER_ACCOUNT
API_SERVICE_PORT = 80
HTTP = "http"
PROBES = "probes"

METRICS = "metrics"
"""Names of container ports, the same for every process. The Service offers its metrics under the same name."""

SETTINGS_DIRECTORY = "/etc/gpu-platform"

GRACE_SECONDS = 30
"""The reconciler gives its passes 10 s and the API its requests 5 s; then the lease is given back."""

STACK_GRACE_SECONDS = 60
"""A worker gives Pulumi 15 s to end by itself, and as long again to save what it has done."""


@dataclass(frozen=True)
class QueueClient:
    settings: dict[str, Any] = field(default_factory=dict)
    secret: str | None = None
    authority_secret: str | None = None

    def build_volumes(self) -> list[Json]:
        # Readable by the pod's own group: the process is not root. Optional: units and stock are served without NATS.
        volumes: list[Json] = []
        if self.secret:
            secret: Json = {"secretName": self.secret, "defaultMode": 0o440, "optional": True}
            volumes.append({"name": "nats", "secret": secret})
        if self.authority_secret:
            # Of our own servers, this Secret has their key too.
            items = [{"key": "ca.crt", "path": "ca.crt"}]
            secret = {"secretName": self.authority_secret, "items": items, "defaultMode": 0o440, "optional": True}
            volumes.append({"name": "nats-ca", "secret": secret})
        return volumes

    def build_mounts(self) -> list[Json]:
        # Whole directories, not single files of them: those would stay as they were when the Secret is renewed.
        directories = {"nats": CREDENTIALS_DIRECTORY, "nats-ca": AUTHORITY_DIRECTORY}
        return [
            {"name": volume["name"], "mountPath": directories[volume["name"]], "readOnly": True}
            for volume in self.build_volumes()
        ]


NO_CLIENT = QueueClient()


def build_api_client(nats: Nats) -> QueueClient:
    url = _url_of(nats)
    if url is None:
        return NO_CLIENT
    return QueueClient(_common(nats, url), nats.api_secret, _authority_of(nats))


def build_reconciler_client(nats: Nats, image: str | None) -> QueueClient:
    """It also makes the workers' pods: their sidecar is in the platform's own image."""
    url = _url_of(nats)
    if url is None:
        return NO_CLIENT
    settings = {
        **_common(nats, url),
        "natsSigningKey": f"{CREDENTIALS_DIRECTORY}/signing.key",
        "natsSystemCredentials": f"{CREDENTIALS_DIRECTORY}/system.creds",
        "natsReplicas": min(nats.replicas, ENOUGH_REPLICAS),
        **({"natsEgressLabels": [f"{key}={value}" for key, value in app_labels(NAME).items()]} if nats.enabled else {}),
        **({"sidecarImage": image} if image else {}),
    }
    return QueueClient(settings, nats.reconciler_secret, _authority_of(nats))


def _common(nats: Nats, url: str) -> dict[str, Any]:
    authority = {"natsCA": f"{AUTHORITY_DIRECTORY}/ca.crt"} if _authority_of(nats) else {}
    return {"natsURL": url, "natsCredentials": f"{CREDENTIALS_DIRECTORY}/nats.creds", **authority}


def _url_of(nats: Nats) -> str | None:
    return nats_url() if nats.enabled else nats.url


def _authority_of(nats: Nats) -> str | None:
    return nats.ca_secret or (nats.tls_secret if nats.enabled else None)


@dataclass(frozen=True)
class Process:
    """What sets one of our processes apart from the others."""

    name: str
    subcommand: str
    """Of `gpu-platform`."""

    settings: str
    """The content of its settings file."""

    replicas: int
    resources: Amounts
    ports: dict[str, int]
    """Of the container; every process has `probes` and `metrics`."""

    offered_ports: dict[str, int]
    """Those of its Service, by the name of the container's port."""

    options: tuple[str, ...] = ()
    """Of the subcommand, beside its settings file."""

    passphrase_secret: str | None = None
    environment_secret: str | None = None
    queue: QueueClient = NO_CLIENT
    grace_seconds: int = GRACE_SECONDS
    scratch: str = "64Mi"


def build_processes(workloads: Workloads, nats: Nats) -> tuple[Process, ...]:
    api_client, reconciler_client = build_api_client(nats), build_reconciler_client(nats, workloads.image)
    api = Process(
        name=API,
        subcommand="api",
        settings=render_settings(workloads.api.settings, api_client.settings),
        replicas=workloads.api.replicas,
        resources=workloads.api.resources,
        ports={HTTP: port_of(API_ADDRESS), **_own_ports(API_METRICS_ADDRESS, API_PROBE_ADDRESS)},
        offered_ports={HTTP: API_SERVICE_PORT, METRICS: port_of(API_METRICS_ADDRESS)},
        # The stack worker is a Deployment of its own here.
        options=("--no-stack-worker",),
        queue=api_client,
    )
    reconciler = Process(
        name=RECONCILER,
        subcommand="reconciler",
        settings=render_settings(workloads.reconciler.settings, {**_of_image(workloads), **reconciler_client.settings}),
        replicas=workloads.reconciler.replicas,
        resources=workloads.reconciler.resources,
        ports=_own_ports(METRICS_ADDRESS, PROBE_ADDRESS),
        offered_ports={METRICS: port_of(METRICS_ADDRESS)},
        queue=reconciler_client,
    )
    return (api, reconciler, *([_stack_worker(workloads.stack_worker)] if workloads.stack_worker.enabled else []))


def _own_ports(metrics_address: str, probe_address: str) -> dict[str, int]:
    return {METRICS: port_of(metrics_address), PROBES: port_of(probe_address)}


def _of_image(workloads: Workloads) -> dict[str, str]:
    """The file browser of storages is in the platform's own image."""
    return {"accessorImage": workloads.image} if workloads.image else {}


def _stack_worker(wanted: StackWorker) -> Process:
    return Process(
        name=STACK_WORKER,
        subcommand="stack-worker",
        settings=render_settings(wanted.settings),
        replicas=wanted.replicas,
        resources=wanted.resources,
        ports=_own_ports(STACK_METRICS_ADDRESS, STACK_PROBE_ADDRESS),
        offered_ports={METRICS: port_of(STACK_METRICS_ADDRESS)},
        passphrase_secret=wanted.passphrase_secret,
        environment_secret=wanted.environment_secret,
        grace_seconds=STACK_GRACE_SECONDS,
        # Work directories and Pulumi's logs.
        scratch="1Gi",
    )


def build_workload(process: Process, workloads: Workloads, nats: Nats) -> tuple[Json, ...]:
    return (
        build_settings(process),
        _network_policy(process, workloads, nats),
        build_deployment(process, workloads),
        build_service(process),
        build_disruption_budget(process),
    )


def _network_policy(process: Process, workloads: Workloads, nats: Nats) -> Json:
    network, dns = workloads.network, workloads.reconciler.settings.dns_pods
    metrics = process.ports[METRICS]
    if process.name == API:
        return build_api_policy(process.name, process.ports[HTTP], metrics, network, nats, dns)
    return build_metrics_policy(process.name, metrics, network, dns, nats if process.name == RECONCILER else None)


def build_settings(process: Process) -> Json:
    """Named after its content: a new setting is a new ConfigMap and so a rolling update, and a roll-back finds its own
    settings again."""
    digest = hashlib.sha256(process.settings.encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(f"{process.name}-{digest}", SYSTEM_NAMESPACE),
        "data": {_settings_file(process): process.settings},
    }


def build_deployment(process: Process, workloads: Workloads) -> Json:
    labels = app_labels(process.name)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": build_metadata(process.name, SYSTEM_NAMESPACE, labels=labels),
        "spec": {
            "replicas": process.replicas,
            "revisionHistoryLimit": 3,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(process, workloads)},
        },
    }


def build_service(process: Process) -> Json:
    labels = app_labels(process.name)
    ports = [
        {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
        for name, port in process.offered_ports.items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(process.name, SYSTEM_NAMESPACE, labels=labels),
        "spec": {"type": "ClusterIP", "selector": labels, "ports": ports},
    }


def build_disruption_budget(process: Process) -> Json:
    """One at a time. Not "at least one": with a single replica that would keep its node from ever being drained."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(process.name, SYSTEM_NAMESPACE),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": app_labels(process.name)}},
    }


def build_service_monitors(workloads: Workloads) -> Iterator[Json]:
    monitors = workloads.service_monitors
    if not monitors.enabled:
        return
    endpoint: Json = {"port": METRICS, "path": "/metrics", "interval": f"{monitors.interval_seconds}s"}
    for name in (API, RECONCILER, *([STACK_WORKER] if workloads.stack_worker.enabled else [])):
        yield _service_monitor(name, monitors.labels, endpoint)


def find_ignored_setting(workloads: Workloads) -> str | None:
    """Returns a warning about a setting of an earlier release that has no effect any more."""
    secret = workloads.service_monitors.api_key_secret
    if secret is None:
        return None
    return (
        f"workloads.serviceMonitors.apiKeySecret is {secret!r} and is ignored: Prometheus reads the API's metrics on a "
        "port of their own, without a key. Remove the setting, and then the Secret and its key; the next release "
        "refuses the setting."
    )


def api_url() -> str:
    """As the cluster's inside sees it."""
    return f"http://{API}.{SYSTEM_NAMESPACE}.svc.cluster.local:{API_SERVICE_PORT}"


def _service_monitor(name: str, labels: dict[str, str], endpoint: Json) -> Json:
    api_version, kind = SERVICE_MONITOR
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": build_metadata(name, SYSTEM_NAMESPACE, labels=labels),
        "spec": {"selector": {"matchLabels": app_labels(name)}, "endpoints": [endpoint]},
    }


def _pod(process: Process, workloads: Workloads) -> Json:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": app_labels(process.name)},
    }
    secrets = [{"name": name} for name in workloads.image_pull_secrets]
    return {
        "serviceAccountName": process.name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": process.grace_seconds,
        "securityContext": POD_SECURITY,
        "topologySpreadConstraints": [spread],
        "containers": [_container(process, workloads)],
        "volumes": [
            {"name": "settings", "configMap": {"name": build_settings(process)["metadata"]["name"]}},
            {"name": "scratch", "emptyDir": {"sizeLimit": process.scratch}},
            *_passphrase_volume(process),
            *process.queue.build_volumes(),
        ],
        **({"imagePullSecrets": secrets} if secrets else {}),
        **_placement(workloads.placement),
    }


def _passphrase_volume(process: Process) -> list[Json]:
    if process.passphrase_secret is None:
        return []
    items = [{"key": "passphrase", "path": "passphrase"}]
    # Readable by the pod's own group: the process is not root.
    secret = {"secretName": process.passphrase_secret, "items": items, "defaultMode": 0o440}
    return [{"name": "passphrase", "secret": secret}]


def _placement(placement: Placement) -> Json:
    tolerations = [toleration.to_json() for toleration in placement.tolerations]
    return {
        **({"nodeSelector": dict(placement.node_selector)} if placement.node_selector else {}),
        **({"tolerations": tolerations} if tolerations else {}),
    }


def _container(process: Process, workloads: Workloads) -> Json:
    amounts = build_amounts(process.resources)
    return {
        "name": process.subcommand,
        "image": workloads.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "gpu-platform",
            process.subcommand,
            "--config",
            f"{SETTINGS_DIRECTORY}/{_settings_file(process)}",
            *process.options,
        ],
        **({"envFrom": [{"secretRef": {"name": process.environment_secret}}]} if process.environment_secret else {}),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in sorted(process.ports.items())
        ],
        "livenessProbe": _probe("/healthz", failures=3),
        # One failure takes it out: whoever is not ready answers with an error, or does not see the cluster.
        "readinessProbe": _probe("/readyz", failures=1),
        # Python and the first lists take their time on a busy node; until then nobody asks whether it lives.
        "startupProbe": _probe("/healthz", failures=30),
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "settings", "mountPath": SETTINGS_DIRECTORY, "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 - the root file system is read-only
            *(
                [{"name": "passphrase", "mountPath": PASSPHRASE_DIRECTORY, "readOnly": True}]
                if process.passphrase_secret
                else []
            ),
            *process.queue.build_mounts(),
        ],
    }


def _probe(path: str, *, failures: int) -> Json:
    request = {"path": path, "port": PROBES, "scheme": "HTTP"}
    return {"httpGet": request, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": failures}


def _settings_file(process: Process) -> str:
    return f"{process.subcommand}.yaml"


@dataclass(frozen=True)
class PlatformWorkloadsArgs:
    settings: Workloads
    nats: Nats
    """Whose clients they are, if there is one."""

    after: Sequence[pulumi.Resource]
    """What a process needs at its first step: namespaces, kinds, rights, keys."""


class PlatformWorkloads(pulumi.ComponentResource):
    def __init__(self, name: str, args: PlatformWorkloadsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-platform:infra:Workloads", name, {}, opts)
        if warning := find_ignored_setting(args.settings):
            pulumi.log.warn(warning, self)
        declare(build_default_deny(SYSTEM_NAMESPACE), self, after=args.after)
        for process in build_processes(args.settings, args.nats):
            settings, *others = build_workload(process, args.settings, args.nats)
            declared = declare(settings, self, after=args.after)
            for body in others:
                made = declare(body, self, after=[*args.after, declared])
                if (body["kind"], process.name) == ("Service", API):
                    self.api_url = name_of(made).apply(lambda _: api_url())
        for body in build_service_monitors(args.settings):
            declare(body, self, after=args.after)
        self.register_outputs({"apiURL": self.api_url})
