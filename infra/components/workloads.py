"""The objects of our own processes: a Deployment each, with all that belongs to it.

Network policies say who may call the platform's own pods, and whom they may call:

| pods         | in                                     | out                                                  |
| ------------ | -------------------------------------- | ---------------------------------------------------- |
| all          | nothing                                | nothing                                              |
| API          | its public port, from anywhere;        | DNS, `egressPorts`, NATS, tenants' pods              |
|              | metrics, from `metricsNamespaces`      |                                                      |
| reconciler   | metrics, from `metricsNamespaces`      | DNS, `egressPorts`, NATS                             |
| stack worker | metrics, from `metricsNamespaces`      | DNS, `egressPorts`                                   |
| NATS         | clients of the platform, other servers | DNS, other servers                                   |

The kubelet's probes need no hole: Kubernetes always lets a node reach its own pods. `egressPorts` are open to every
address, because no policy can say for every cluster which address its API server has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pulumi

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.network import build_peer
from infra.component import (
    CONTAINER_SECURITY,
    OUR_NAMESPACES,
    POD_SECURITY,
    Component,
    app_labels,
    build_amounts,
    build_config_map,
    build_disruption_budget,
    build_metadata,
    build_network_policy,
    build_object,
    build_probe,
    build_service,
    build_tcp_ports,
    name_of,
)
from infra.components.namespaces import build_default_deny
from infra.components.nats import CLIENT_PORT, NAME, Nats
from infra.components.processes import (
    API,
    API_SERVICE_PORT,
    HTTP,
    METRICS,
    PASSPHRASE_DIRECTORY,
    PROBES,
    RECONCILER,
    STACK_WORKER,
    Network,
    Placement,
    Process,
    Workloads,
    build_processes,
)

SERVICE_MONITOR = ("monitoring.coreos.com/v1", "ServiceMonitor")

SETTINGS_DIRECTORY = "/etc/gpu-platform"


def build_workload(process: Process, workloads: Workloads, nats: Nats) -> tuple[Json, ...]:
    return (
        build_settings(process),
        _network_policy(process, workloads, nats),
        build_deployment(process, workloads),
        build_service(process.name, process.name, process.offered_ports, type="ClusterIP"),
        build_disruption_budget(process.name),
    )


def _network_policy(process: Process, workloads: Workloads, nats: Nats) -> Json:
    """The rules of the table above."""
    network = workloads.network
    ingress = _build_scrapes(process.ports[METRICS], network)
    egress = [
        workloads.reconciler.settings.dns_pods.to_rule(),
        {"ports": build_tcp_ports(*network.egress_ports)},
        *(_build_nats(nats) if process.name != STACK_WORKER else ()),
    ]
    if process.name == API:
        ingress = [{"ports": build_tcp_ports(process.ports[HTTP])}, *ingress]
        egress = [*egress, {"to": [OUR_NAMESPACES]}]
    return build_network_policy(process.name, ingress=ingress, egress=egress)


def _build_scrapes(port: int, network: Network) -> list[Json]:
    """Without namespaces there is no rule at all: one with an empty `from` would let everything in."""
    scrapers = [build_peer(namespace, {}) for namespace in network.metrics_namespaces]
    return [{"from": scrapers, "ports": build_tcp_ports(port)}] if scrapers else []


def _build_nats(nats: Nats) -> list[Json]:
    if nats.enabled:
        return [{"to": [build_peer(SYSTEM_NAMESPACE, app_labels(NAME))], "ports": build_tcp_ports(CLIENT_PORT)}]
    return [{"ports": build_tcp_ports(urlsplit(nats.url).port or CLIENT_PORT)}] if nats.url else []


def build_settings(process: Process) -> Json:
    return build_config_map(process.name, _settings_file(process), process.settings)


def build_deployment(process: Process, workloads: Workloads) -> Json:
    labels = app_labels(process.name)
    return build_object(
        "Deployment",
        process.name,
        SYSTEM_NAMESPACE,
        labels=labels,
        spec={
            "replicas": process.replicas,
            "revisionHistoryLimit": 3,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(process, workloads)},
        },
    )


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
        "livenessProbe": build_probe("/healthz", PROBES, period=5, timeout=3, failures=3),
        # One failure takes it out: whoever is not ready answers with an error, or does not see the cluster.
        "readinessProbe": build_probe("/readyz", PROBES, period=5, timeout=3, failures=1),
        # Python and the first lists take their time on a busy node; until then nobody asks whether it lives.
        "startupProbe": build_probe("/healthz", PROBES, period=5, timeout=3, failures=30),
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


def _settings_file(process: Process) -> str:
    return f"{process.subcommand}.yaml"


@dataclass(frozen=True)
class PlatformWorkloadsArgs:
    settings: Workloads
    nats: Nats
    """Whose clients they are, if there is one."""


class PlatformWorkloads(Component):
    """Has to depend on what a process needs at its first step: namespaces, kinds, rights, keys."""

    def __init__(self, name: str, args: PlatformWorkloadsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("Workloads", name, opts)
        if warning := find_ignored_setting(args.settings):
            pulumi.log.warn(warning, self)
        self.declare(build_default_deny(SYSTEM_NAMESPACE))
        services = {}
        for process in build_processes(args.settings, args.nats):
            settings, *others = build_workload(process, args.settings, args.nats)
            declared = self.declare(settings)
            made = {body["kind"]: self.declare(body, after=[declared]) for body in others}
            services[process.name] = name_of(made["Service"])
        for body in build_service_monitors(args.settings):
            self.declare(body)
        self.api_url = services[API].apply(lambda _: api_url())
        self.register_outputs({"apiURL": self.api_url})
