"""The objects behind a storage: pure builders.

Values are in the form in which the API server stores them, so that a live object can be compared with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import KUBE_DNS, DnsPods
from gpu_platform.domain.quantities import canonical_quantity
from gpu_platform.domain.specs import Toleration
from gpu_platform.domain.storages import GPUStorageSpec, Prepare
from reconciler.child_diff import POD_IP, build_child, build_child_deployment
from reconciler.isolation import (
    ADDED_CAPABILITIES,
    HELPER_DISK,
    JOB_DISK,
    NOBODY,
    SECCOMP,
    build_admissions,
    build_disk_limit,
    build_egress,
    build_security_context,
)
from reconciler.units.resources import LAST_WORDS, VOLUME_GROUP, claim_volume

WORKSPACE, SOURCE, DATA = "/workspace", "/source", "/data"
COPY_COMMAND = ("cp", "-a", f"{SOURCE}/.", f"{WORKSPACE}/")

ROOT = 0
ACCESSOR_GRACE_SECONDS = 2
"""It only reads. A unit on another node may be waiting for the volume."""

JOB_KEPT_SECONDS = 86_400
"""A day, for its logs. How it ended is remembered in the storage's status, so that its removal repeats nothing."""


@dataclass(frozen=True)
class StorageSettings:
    copy_image: str
    accessor_image: str
    accessor_command: tuple[str, ...]
    blocked_egress: tuple[str, ...]
    storage_class: str | None = None
    """For storages that name none; None: the cluster's default."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    """Where storages are prepared and shown."""

    dns: DnsPods = KUBE_DNS


@dataclass(frozen=True)
class StorageBuild:
    """Everything that a storage's objects are made of."""

    namespace: str
    name: str
    uid: str
    spec: GPUStorageSpec
    restricted: bool
    settings: StorageSettings
    beside_unit: str | None = None
    """The unit on whose node the file browser has to be: a volume is usually on one node at a time."""


def build_claim(build: StorageBuild) -> Json:
    """Without an owner reference: data go by a decision, never by the garbage collector."""
    spec: Json = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": canonical_quantity(build.spec.size)}},
    }
    if class_name := build.spec.storage_class_name or build.settings.storage_class:
        spec["storageClassName"] = class_name
    metadata = {"name": build.name, "namespace": build.namespace, "labels": names.storage_labels(build.name)}
    return build_child("PersistentVolumeClaim", metadata, spec)


def build_network_policy(build: StorageBuild) -> Json:
    """Out: as a unit. In: the platform's proxy, to the file browser."""
    spec = {
        "podSelector": {"matchLabels": {names.LABEL_STORAGE: build.name}},
        "policyTypes": ["Ingress", "Egress"],
        "egress": build_egress(build.settings.blocked_egress, build.settings.dns),
        "ingress": build_admissions([("TCP", names.ACCESSOR_PORT)]),
    }
    return build_child("NetworkPolicy", _metadata(build, names.storage_policy_name(build.name)), spec)


def build_job(build: StorageBuild, prepare: Prepare, digest: str) -> Json:
    """One try: what failed is not repeated before somebody asks for it. Suspended: it runs once that is recorded."""
    is_copy = prepare.from_storage_name is not None
    mounts: list[Json] = [{"name": "workspace", "mountPath": WORKSPACE}]
    volumes = [claim_volume("workspace", build.name)]
    if prepare.from_storage_name is not None:
        mounts.append({"name": "source", "mountPath": SOURCE, "readOnly": True})
        volumes.append(claim_volume("source", prepare.from_storage_name))
    command, args = (COPY_COMMAND, ()) if is_copy else (prepare.command, prepare.args)
    container: Json = {
        "name": "prepare",
        "image": prepare.from_image or build.settings.copy_image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": LAST_WORDS,
        "securityContext": _security_context(build),
        "resources": build_disk_limit(JOB_DISK),
        "volumeMounts": mounts,
        **({"command": list(command)} if command else {}),
        **({"args": list(args)} if args else {}),
    }
    labels = {**names.storage_labels(build.name), names.LABEL_STORAGE_PREPARE: digest[:10]}
    pod = {**_pod(build, volumes), "restartPolicy": "Never", "containers": [container]}
    spec = {
        "backoffLimit": 0,
        "suspend": True,
        "ttlSecondsAfterFinished": JOB_KEPT_SECONDS,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {**_metadata(build, names.prepare_job_name(build.name, digest)), "labels": labels}
    return build_child("Job", metadata, spec)


def build_accessor_service(build: StorageBuild) -> Json:
    port = {"name": "http", "port": names.ACCESSOR_PORT, "targetPort": names.ACCESSOR_PORT, "protocol": "TCP"}
    spec = {"type": "ClusterIP", "selector": _accessor_labels(build), "ports": [port]}
    return build_child("Service", _metadata(build, names.accessor_name(build.name)), spec)


def build_accessor(build: StorageBuild) -> Json:
    container: Json = {
        "name": "accessor",
        "image": build.settings.accessor_image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": LAST_WORDS,
        "command": list(build.settings.accessor_command),
        "env": [POD_IP],
        "ports": [{"name": "http", "containerPort": names.ACCESSOR_PORT, "protocol": "TCP"}],
        # A page would list a directory, of whatever size it is, every two seconds.
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 2},
        # What units write is mostly for root alone.
        "securityContext": {**({} if build.restricted else {"runAsUser": ROOT}), **_security_context(build)},
        "resources": build_disk_limit(HELPER_DISK),
        "volumeMounts": [{"name": "data", "mountPath": DATA, "readOnly": True}],
    }
    pod = {
        **_pod(build, [claim_volume("data", build.name)]),
        "terminationGracePeriodSeconds": ACCESSOR_GRACE_SECONDS,
        "containers": [container],
    }
    if build.beside_unit is not None:
        pod["affinity"] = _beside(build.beside_unit)
    labels = _accessor_labels(build)
    template = {"metadata": {"labels": {**names.storage_labels(build.name), **labels}}, "spec": pod}
    return build_child_deployment(_metadata(build, names.accessor_name(build.name)), labels, template)


def accessor_url(namespace: str, storage: str) -> str:
    return f"http://{names.accessor_name(storage)}.{namespace}.svc.cluster.local:{names.ACCESSOR_PORT}/"


def _accessor_labels(build: StorageBuild) -> dict[str, str]:
    return {names.LABEL_STORAGE_ACCESSOR: build.uid}


def _metadata(build: StorageBuild, name: str) -> Json:
    return {
        "name": name,
        "namespace": build.namespace,
        "labels": names.storage_labels(build.name),
        "ownerReferences": [names.owner_reference("GPUStorage", build.name, build.uid)],
    }


def _pod(build: StorageBuild, volumes: list[Json]) -> Json:
    settings = build.settings
    pod: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": names.UNIT_PRIORITY_CLASS,
        "securityContext": {**SECCOMP, **VOLUME_GROUP},
        "volumes": volumes,
    }
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        pod["tolerations"] = [toleration.to_json() for toleration in settings.tolerations]
    return pod


def _security_context(build: StorageBuild) -> Json:
    if build.restricted:
        return build_security_context(runAsNonRoot=True, runAsUser=NOBODY)
    return build_security_context(ADDED_CAPABILITIES)


def _beside(unit: str) -> Json:
    term = {"labelSelector": {"matchLabels": {names.LABEL_UNIT: unit}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
