"""The objects that make a unit run: pure builders from the unit and its catalogue entry.

Values are in the form in which the API server stores them, so that a live object can be compared with them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic.main import IncEx

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.network import KUBE_DNS, DnsPods
from gpu_platform.domain.quantities import canonical_quantity, format_bytes, parse_amount
from gpu_platform.domain.specs import DEFAULT_EPHEMERAL_STORAGE, GPUSpecSpec
from gpu_platform.domain.units import GPUUnitSpec, Probe
from reconciler.child_diff import POD_IP, UnitChild, build_child, build_child_deployment
from reconciler.isolation import (
    ADDED_CAPABILITIES,
    EPHEMERAL_STORAGE,
    NOBODY,
    SECCOMP,
    UNITS_OF_TENANT,
    build_admissions,
    build_egress,
    build_security_context,
)
from reconciler.pod_templates import PodTemplate, with_template
from reconciler.units.route_resources import RouteBuild, build_admission, build_route_object
from reconciler.units.serverless_resources import WorkerBuild, with_sidecar
from reconciler.units.ssh_resources import SshBuild, with_ssh

CONTAINER = "runtime-worker"
SHM_VOLUME = "runtime-shm"
STORAGE_VOLUME = "storage"
IDLE_COMMAND = ("sleep", "infinity")
"""What a placeholder runs: it holds its GPUs, needs nothing of the image but coreutils, and ends on SIGTERM only,
because it is never process 1."""

LAST_WORDS = "FallbackToLogsOnError"
"""A container that fails without a termination message leaves the end of its log: why it failed is in the status."""

RESTARTS_ANNOTATION = f"{names.GROUP}/restarts"

VOLUME_GROUP = {"fsGroup": NOBODY, "fsGroupChangePolicy": "OnRootMismatch"}
"""Whoever an image runs as may write to the storage; a volume with many files is not walked through at every start."""

STOCK_GRACE_SECONDS = 0
"""A placeholder has nothing to finish, and a tenant waits for its GPUs."""

UNIT_GRACE_SECONDS = 30

NOT_OF_THE_POD: Mapping[str, IncEx | bool] = {
    "access": True,
    "running": True,
    "serverless": {"min_available_count", "idle_timeout_seconds"},
}
"""Fields of a unit's spec that its pod template is not made of: a change of them must not restart a unit that an
earlier version of the platform started."""


@dataclass(frozen=True)
class UnitBuild:
    """Everything that a unit's objects are made of."""

    namespace: str
    name: str
    uid: str
    spec: GPUUnitSpec
    catalogue: GPUSpecSpec
    restricted: bool
    """The namespace asks for the `restricted` Pod Security profile."""

    replicas: int
    preferred_node: str | None
    placeholder_image: str
    blocked_egress: tuple[str, ...]
    worker: WorkerBuild | None = None
    """Of a unit that takes calls."""

    ssh: SshBuild | None = None
    """Of a unit with SSH."""

    route: RouteBuild | None = None
    """Of a public one."""

    dns: DnsPods = KUBE_DNS
    kept_template: PodTemplate | None = None
    """The pod template that was chosen; None: today's, without a record."""

    @property
    def is_stock(self) -> bool:
        return names.is_stock_namespace(self.namespace)

    @property
    def is_placeholder(self) -> bool:
        return self.is_stock or self.spec.image is None

    @property
    def memory(self) -> str:
        return self.spec.memory or self.catalogue.memory

    @property
    def gpu(self) -> int:
        return self.catalogue.gpu if self.spec.gpu is None else self.spec.gpu

    @property
    def template_inputs(self) -> Json:
        """What the pod template is made of and is the tenant's. Without defaults: a field that a later version adds
        changes no unit that does not use it."""
        spec = self.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=NOT_OF_THE_POD)
        function = self.worker.inputs if self.worker is not None else {}
        return {"spec": spec, **({"function": function} if function else {})}

    @cached_property
    def pod_template(self) -> Json:
        """Made once: the status and the Deployment both need its hash."""
        if self.kept_template is not None:
            return self.kept_template.body
        pod = _pod(self) if self.worker is None else with_sidecar(_pod(self), self.worker)
        if self.ssh is not None:
            pod = with_ssh(pod, self.ssh, names.child_name(self.name))
        pod = _with_last_words(pod)
        # The uid tells the pods of this unit from those of an earlier one with its name, the hash those of this
        # template from those of an earlier one.
        # One more restart is another template; without any, nothing of it is said.
        annotations = {RESTARTS_ANNOTATION: str(self.spec.restarts)} if self.spec.restarts else {}
        labels = {
            **names.unit_labels(self.name),
            names.LABEL_UNIT_UID: self.uid,
            names.LABEL_TEMPLATE: _hash_of({**pod, **annotations}),
        }
        metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
        return {"metadata": metadata, "spec": pod}


def build_deployment(build: UnitBuild) -> Json:
    labels = {names.LABEL_UNIT: build.name}
    deployment = build_child_deployment(_metadata(build), labels, build.pod_template, build.replicas)
    return deployment if build.kept_template is None else with_template(deployment, build.kept_template)


def template_hash(build: UnitBuild) -> str:
    """The label of every pod that is as the unit is to be now."""
    label: str = build.pod_template["metadata"]["labels"][names.LABEL_TEMPLATE]
    return label


def build_service(build: UnitBuild) -> Json | None:
    """A stock unit, and one without ports, has none."""
    if build.is_stock or not build.spec.template.ports:
        return None
    ports = [
        {"name": port.name, "port": port.port, "targetPort": port.port, "protocol": port.protocol}
        for port in build.spec.template.ports
    ]
    spec = {"type": "ClusterIP", "selector": {names.LABEL_UNIT_UID: build.uid}, "ports": ports}
    return build_child("Service", _metadata(build), spec)


def build_config_map(build: UnitBuild) -> Json | None:
    """The files of a unit's SSH; without SSH there are none."""
    if build.ssh is None:
        return None
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(build), "data": build.ssh.files}


def build_route(build: UnitBuild, kind: UnitChild) -> Json | None:
    """Of the kind that the settings ask for; there is none of the other."""
    if build.route is None or build.route.settings.kind is not kind:
        return None
    metadata = {**_metadata(build), "annotations": dict(build.route.settings.annotations)}
    return build_route_object(build.route, metadata, service=names.child_name(build.name))


def build_network_policy(build: UnitBuild) -> Json:
    """Out: names, the internet but no private range, and the tenant's units. In, on the declared ports: the platform's
    proxy, and where `access.tenant` says so the tenant's units; of a public unit those who bring the public's calls, on
    its primary port. Who may be called decides that unit: the way out to it is always open."""
    spec: Json = {
        "podSelector": {"matchLabels": {names.LABEL_UNIT: build.name}},
        "policyTypes": ["Ingress", "Egress"],
        "egress": build_egress(build.blocked_egress, build.dns),
    }
    if not build.is_stock:
        spec["egress"].append({"to": [UNITS_OF_TENANT]})
    if build.worker is not None and build.worker.settings.egress is not None:
        spec["egress"].append(build.worker.settings.egress.to_rule())
    if build.ssh is not None and build.ssh.egress is not None:
        spec["egress"].append(build.ssh.egress.to_rule())
    if not build.is_stock and build.spec.template.ports:
        callers = [UNITS_OF_TENANT] if build.spec.access is not None and build.spec.access.tenant else []
        ports = [(port.protocol, port.port) for port in build.spec.template.ports]
        spec["ingress"] = build_admissions(ports, callers)
        if build.route is not None:
            spec["ingress"].append(build_admission(build.route))
    return build_child("NetworkPolicy", _metadata(build), spec)


def _hash_of(pod: Json) -> str:
    return hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:10]


def _metadata(build: UnitBuild) -> Json:
    return {
        "name": names.child_name(build.name),
        "namespace": build.namespace,
        "labels": names.unit_labels(build.name),
        "ownerReferences": [names.owner_reference("GPUUnit", build.name, build.uid)],
    }


def _pod(build: UnitBuild) -> Json:
    catalogue = build.catalogue
    selector = dict(catalogue.node_selector)
    if catalogue.gpu_product:
        selector["nvidia.com/gpu.product"] = catalogue.gpu_product
    shm = format_bytes(int(parse_amount(build.memory)) // 2)
    pod: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": names.STOCK_PRIORITY_CLASS if build.is_stock else names.UNIT_PRIORITY_CLASS,
        "terminationGracePeriodSeconds": STOCK_GRACE_SECONDS if build.is_stock else UNIT_GRACE_SECONDS,
        "securityContext": {**SECCOMP},
        **({"shareProcessNamespace": True} if _runs_bare_command(build) else {}),
        "containers": [_container(build)],
        "volumes": [{"name": SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": shm}}],
    }
    if selector:
        pod["nodeSelector"] = selector
    if catalogue.tolerations:
        pod["tolerations"] = [toleration.to_json() for toleration in catalogue.tolerations]
    if catalogue.runtime_class_name:
        pod["runtimeClassName"] = catalogue.runtime_class_name
    if catalogue.user_namespaces:
        pod["hostUsers"] = False
    if build.preferred_node:
        pod["affinity"] = _prefer(build.preferred_node)
    if mounts := build.spec.storage_mounts:
        pod["volumes"] += [claim_volume(f"{STORAGE_VOLUME}-{i}", mount.name) for i, mount in enumerate(mounts)]
        pod["securityContext"] |= VOLUME_GROUP
    return pod


def _with_last_words(pod: Json) -> Json:
    lists = {key: pod[key] for key in ("initContainers", "containers") if key in pod}
    policy = {"terminationMessagePolicy": LAST_WORDS}
    return {**pod, **{key: [{**container, **policy} for container in each] for key, each in lists.items()}}


def _runs_bare_command(build: UnitBuild) -> bool:
    """Whether the pod has one container, and that runs a command of the template or the placeholder's. As process 1 it
    would get no SIGTERM for which it has no handler, and be killed when its grace is over (ADR 0020)."""
    has_sidecars = build.worker is not None or build.ssh is not None
    return bool(_command(build)) and not has_sidecars


def _command(build: UnitBuild) -> tuple[str, ...]:
    """Empty: the image's own entrypoint."""
    template = build.spec.template
    if build.is_stock or (build.spec.image is None and not (template.command or template.args)):
        return IDLE_COMMAND
    return template.command


def claim_volume(name: str, claim: str) -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def _storage_mounts(build: UnitBuild) -> list[Json]:
    return [
        {
            "name": f"{STORAGE_VOLUME}-{index}",
            "mountPath": mount.mount_path,
            # False is not stored.
            **({"readOnly": True} if mount.read_only else {}),
        }
        for index, mount in enumerate(build.spec.storage_mounts)
    ]


def _prefer(node: str) -> Json:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def find_preferred_node(deployment: Json | None) -> str | None:
    """The node that a Deployment of ours prefers. It stays when the stock that named it is gone: another template
    would restart the unit."""
    try:
        affinity = deployment["spec"]["template"]["spec"]["affinity"] if deployment else {}
        term = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
        return str(term["preference"]["matchExpressions"][0]["values"][0])
    except (KeyError, IndexError, TypeError):
        return None


def _container(build: UnitBuild) -> Json:
    template = build.spec.template
    amounts = {
        "cpu": canonical_quantity(build.catalogue.cpu),
        "memory": canonical_quantity(build.memory),
        EPHEMERAL_STORAGE: canonical_quantity(build.catalogue.ephemeral_storage or DEFAULT_EPHEMERAL_STORAGE),
        **({names.GPU_RESOURCE: str(build.gpu)} if build.gpu else {}),
    }
    container: Json = {
        "name": CONTAINER,
        "image": build.spec.image or build.placeholder_image,
        "imagePullPolicy": "IfNotPresent",
        "env": _env(build),
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": _security_context(build),
        "volumeMounts": [{"name": SHM_VOLUME, "mountPath": "/dev/shm"}, *_storage_mounts(build)],  # noqa: S108
    }
    if command := _command(build):
        container["command"] = list(command)
    if template.args and not build.is_stock:
        container["args"] = list(template.args)
    if template.ports and not build.is_stock:
        container["ports"] = [
            {"name": port.name, "containerPort": port.port, "protocol": port.protocol} for port in template.ports
        ]
    if template.probes and not build.is_stock:
        for key in ("startup", "readiness", "liveness"):
            if probe := getattr(template.probes, key):
                container[f"{key}Probe"] = _probe(probe)
    return container


def _env(build: UnitBuild) -> list[Json]:
    own: list[Json] = [
        {"name": "SPEC_NAME", "value": build.spec.spec_name},
        {"name": "UNIT_NAME", "value": build.name},
        {"name": "GPU_COUNT", "value": str(build.gpu)},
        {"name": "MEMORY_LIMIT", "value": build.memory},
        POD_IP,
    ]
    # Kubernetes drops an empty value when it stores the object.
    theirs = [env.to_json() if env.value else {"name": env.name} for env in build.spec.template.envs]
    taken = {env["name"] for env in theirs}
    return [*(env for env in own if env["name"] not in taken), *theirs]


def _security_context(build: UnitBuild) -> Json:
    is_strict = build.is_stock or build.restricted
    context = build_security_context(() if is_strict else ADDED_CAPABILITIES)
    if is_strict or build.is_placeholder:
        context["runAsNonRoot"] = True
    return context | ({"runAsUser": NOBODY} if build.is_placeholder else {})


def _probe(probe: Probe) -> Json:
    body: Json = {
        "initialDelaySeconds": probe.initial_delay_seconds,
        "periodSeconds": probe.period_seconds,
        "timeoutSeconds": probe.timeout_seconds,
        "failureThreshold": probe.failure_threshold,
    }
    if not probe.initial_delay_seconds:
        # Zero is not stored.
        del body["initialDelaySeconds"]
    if probe.http:
        return {**body, "httpGet": {"path": probe.http.path, "port": probe.http.port, "scheme": "HTTP"}}
    if probe.tcp:
        return {**body, "tcpSocket": {"port": probe.tcp.port}}
    return {**body, "exec": {"command": list(probe.command or ())}}
