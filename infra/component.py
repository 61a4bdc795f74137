"""What all components share: how an object becomes a Pulumi resource, and what all objects carry.

The only place that knows the classes of pulumi-kubernetes. Amounts have the form in which the API server gives them
back, so that a refresh shows no change. The security contexts are what the `restricted` profile wants, and more.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import LABEL_MANAGED_BY, LABEL_NAME, SYSTEM_NAMESPACE
from gpu_platform.domain.quantities import canonical_quantity
from infra.field_types import Amounts

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


API_VERSIONS = {kind: api_version for api_version, kind in KINDS}

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


OUR_NAMESPACES: Json = {"namespaceSelector": {"matchLabels": {LABEL_PART_OF: PLATFORM}}}


class Component(pulumi.ComponentResource):
    """A component whose objects wait for all that the component's own `depends_on` names.

    Pulumi does not pass `depends_on` on to children. Their state must name it too: a destroy goes by that.
    """

    def __init__(self, kind: str, name: str, opts: pulumi.ResourceOptions | None) -> None:
        super().__init__(f"gpu-platform:infra:{kind}", name, {}, opts)
        self.dependencies: Any = (opts.depends_on if opts else None) or []

    def declare(
        self, body: Json, *, after: Sequence[pulumi.Resource] = (), protect: bool = False
    ) -> pulumi.CustomResource:
        """Declares one object, under the name that it has in the cluster."""
        metadata = body["metadata"]
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        options = pulumi.ResourceOptions(parent=self, depends_on=[*self.dependencies, *after], protect=protect or None)
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


def build_object(
    kind: str,
    name: str,
    namespace: str | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **fields: Any,
) -> Json:
    """An object of one of `KINDS`."""
    metadata = build_metadata(name, namespace, labels=labels, annotations=annotations)
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": metadata, **fields}


def build_config_map(app: str, file: str, text: str) -> Json:
    """Named after its content: other content is another ConfigMap and so a rolling update, and a roll-back finds its
    own again."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return build_object("ConfigMap", f"{app}-{digest}", SYSTEM_NAMESPACE, data={file: text})


def build_service(name: str, app: str, ports: Mapping[str, int], **options: Any) -> Json:
    """The Service of an app; its ports are called as those of the container."""
    listed = [{"name": port, "port": number, "targetPort": port, "protocol": "TCP"} for port, number in ports.items()]
    spec = {**options, "selector": app_labels(app), "ports": listed}
    return build_object("Service", name, SYSTEM_NAMESPACE, labels=app_labels(app), spec=spec)


def build_disruption_budget(app: str) -> Json:
    """One pod at a time: of three servers, two still decide. Not "at least one": with a single replica that would keep
    its node from ever being drained."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": app_labels(app)}}
    return build_object("PodDisruptionBudget", app, SYSTEM_NAMESPACE, spec=spec)


def build_probe(path: str, port: str, *, period: int, timeout: int, failures: int) -> Json:
    request = {"path": path, "port": port, "scheme": "HTTP"}
    return {"httpGet": request, "periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures}


def app_labels(app: str) -> dict[str, str]:
    """By which Services, policies and budgets find an app's pods."""
    return {LABEL_NAME: app}


def build_amounts(amounts: Amounts) -> dict[str, str]:
    return canonical({"cpu": amounts.cpu, "memory": amounts.memory})


def canonical(amounts: Mapping[str, str]) -> dict[str, str]:
    return {resource: canonical_quantity(text) for resource, text in amounts.items()}


def build_network_policy(app: str, *, ingress: list[Json], egress: list[Json]) -> Json:
    return build_object(
        "NetworkPolicy",
        app,
        SYSTEM_NAMESPACE,
        spec={
            "podSelector": {"matchLabels": app_labels(app)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    )


def build_tcp_ports(*ports: int) -> list[Json]:
    return [{"protocol": "TCP", "port": port} for port in ports]
