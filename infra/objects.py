"""Kubernetes objects of the program: what all of them carry, and how one becomes a Pulumi resource.

The only place that knows the classes of pulumi-kubernetes. Amounts have the form in which the API server gives them
back, so that nothing looks changed after a refresh. The security contexts are what the `restricted` profile wants, and
more. Network policies say who may call the platform's own pods, and whom they may call:

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

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pulumi
import pulumi_kubernetes as kubernetes

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import LABEL_MANAGED_BY, LABEL_NAME, SYSTEM_NAMESPACE
from gpu_platform.domain.network import DnsPods, build_peer
from gpu_platform.domain.quantities import canonical_quantity
from infra.sections import Amounts, Nats, Network

KINDS: dict[tuple[str, str], Callable[..., pulumi.CustomResource]] = {
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
    ): kubernetes.admissionregistration.v1.ValidatingAdmissionPolicy,
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
    ): kubernetes.admissionregistration.v1.ValidatingAdmissionPolicyBinding,
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): kubernetes.apiextensions.v1.CustomResourceDefinition,
    ("apps/v1", "Deployment"): kubernetes.apps.v1.Deployment,
    ("apps/v1", "StatefulSet"): kubernetes.apps.v1.StatefulSet,
    ("networking.k8s.io/v1", "NetworkPolicy"): kubernetes.networking.v1.NetworkPolicy,
    ("policy/v1", "PodDisruptionBudget"): kubernetes.policy.v1.PodDisruptionBudget,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): kubernetes.rbac.v1.ClusterRole,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): kubernetes.rbac.v1.ClusterRoleBinding,
    ("rbac.authorization.k8s.io/v1", "Role"): kubernetes.rbac.v1.Role,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): kubernetes.rbac.v1.RoleBinding,
    ("scheduling.k8s.io/v1", "PriorityClass"): kubernetes.scheduling.v1.PriorityClass,
    ("v1", "ConfigMap"): kubernetes.core.v1.ConfigMap,
    ("v1", "LimitRange"): kubernetes.core.v1.LimitRange,
    ("v1", "Namespace"): kubernetes.core.v1.Namespace,
    ("v1", "ResourceQuota"): kubernetes.core.v1.ResourceQuota,
    ("v1", "Secret"): kubernetes.core.v1.Secret,
    ("v1", "Service"): kubernetes.core.v1.Service,
    ("v1", "ServiceAccount"): kubernetes.core.v1.ServiceAccount,
}

PYTHON_NAMES = {
    "automountServiceAccountToken": "automount_service_account_token",
    "preemptionPolicy": "preemption_policy",
    "roleRef": "role_ref",
}
"""Top-level fields whose name in Python is another; deeper ones may be written as Kubernetes has them."""

LABEL_PART_OF = "app.kubernetes.io/part-of"
PLATFORM = "gpu-platform"

NONROOT = 65_532
"""The user of images without a root."""

POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": NONROOT,
    "runAsGroup": NONROOT,
    "fsGroup": NONROOT,
    "seccompProfile": {"type": "RuntimeDefault"},
}

CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

NATS_PORT = 4222
OUR_NAMESPACES: Json = {"namespaceSelector": {"matchLabels": {LABEL_PART_OF: PLATFORM}}}


def declare(
    body: Json, parent: pulumi.Resource, *, after: Sequence[pulumi.Resource] = (), protect: bool = False
) -> pulumi.CustomResource:
    """One object, under the name that it has in the cluster. `after` is said here, object by object, because children
    do not inherit what their component waits for."""
    metadata = body["metadata"]
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    options = pulumi.ResourceOptions(parent=parent, depends_on=list(after), protect=protect or None)
    kind = KINDS.get((body["apiVersion"], body["kind"]))
    if kind is None:
        return kubernetes.apiextensions.CustomResource(
            name, body["apiVersion"], body["kind"], metadata=metadata, spec=body["spec"], opts=options
        )
    fields = {PYTHON_NAMES.get(key, key): value for key, value in body.items() if key not in ("apiVersion", "kind")}
    return kind(name, opts=options, **fields)


def name_of(declared: pulumi.CustomResource) -> pulumi.Output[str]:
    """The object's name, as an output of it: what is made from that waits for the object."""
    metadata: pulumi.Output[Any] = getattr(declared, "metadata")  # noqa: B009 - every class of the SDK has it
    return metadata["name"]


def build_metadata(
    name: str,
    namespace: str | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Json:
    # The reconciler looks for its own objects by `managed-by`; these say another name and are left alone.
    own = {LABEL_PART_OF: PLATFORM, LABEL_MANAGED_BY: "pulumi"}
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": own | (labels or {}),
        **({"annotations": annotations} if annotations else {}),
    }


def app_labels(app: str) -> dict[str, str]:
    """By which Services, policies and budgets find an app's pods."""
    return {LABEL_NAME: app}


def build_amounts(amounts: Amounts) -> dict[str, str]:
    return canonical({"cpu": amounts.cpu, "memory": amounts.memory})


def canonical(amounts: Mapping[str, str]) -> dict[str, str]:
    return {resource: canonical_quantity(text) for resource, text in amounts.items()}


def build_network_policy(app: str, *, ingress: list[Json], egress: list[Json]) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(app, SYSTEM_NAMESPACE),
        "spec": {
            "podSelector": {"matchLabels": app_labels(app)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def build_api_policy(app: str, public_port: int, metrics_port: int, network: Network, nats: Nats, dns: DnsPods) -> Json:
    tenants: Json = {"to": [OUR_NAMESPACES]}
    return build_network_policy(
        app,
        ingress=[{"ports": _tcp(public_port)}, *_build_scrapes(metrics_port, network)],
        egress=[*_build_basics(network, dns), *_build_nats(nats), tenants],
    )


def build_nats_policy(app: str, client_port: int, cluster_port: int, dns: DnsPods) -> Json:
    """The monitor is for the kubelet alone."""
    servers = {"podSelector": {"matchLabels": app_labels(app)}}
    return build_network_policy(
        app,
        ingress=[
            {"from": [OUR_NAMESPACES], "ports": _tcp(client_port)},
            {"from": [servers], "ports": _tcp(cluster_port)},
        ],
        egress=[dns.to_rule(), {"to": [servers], "ports": _tcp(cluster_port)}],
    )


def build_metrics_policy(app: str, port: int, network: Network, dns: DnsPods, nats: Nats | None = None) -> Json:
    """Of a process that nobody calls but Prometheus; with `nats`, it is a client of it."""
    return build_network_policy(
        app,
        ingress=_build_scrapes(port, network),
        egress=[*_build_basics(network, dns), *(_build_nats(nats) if nats is not None else ())],
    )


def _build_scrapes(port: int, network: Network) -> list[Json]:
    """Without namespaces there is no rule at all: one with an empty `from` would let everything in."""
    scrapers = [build_peer(namespace, {}) for namespace in network.metrics_namespaces]
    return [{"from": scrapers, "ports": _tcp(port)}] if scrapers else []


def _build_basics(network: Network, dns: DnsPods) -> list[Json]:
    return [dns.to_rule(), {"ports": _tcp(*network.egress_ports)}]


def _build_nats(nats: Nats) -> list[Json]:
    if nats.enabled:
        return [{"to": [build_peer(SYSTEM_NAMESPACE, app_labels("nats"))], "ports": _tcp(NATS_PORT)}]
    return [{"ports": _tcp(urlsplit(nats.url).port or NATS_PORT)}] if nats.url else []


def _tcp(*ports: int) -> list[Json]:
    return [{"protocol": "TCP", "port": port} for port in ports]
