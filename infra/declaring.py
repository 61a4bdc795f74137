"""From an object as a plain value to a Pulumi resource. The only place that knows the classes of pulumi-kubernetes."""

from collections.abc import Callable, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

Json = dict[str, Any]

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
