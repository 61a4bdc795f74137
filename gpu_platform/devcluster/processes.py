"""Which processes make a cluster: their command lines, order and the question that tells whether each is ready.

Pure: a directory and a record in, values out. The supervisor runs them.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu_platform.devcluster.configuration import add_own_programs, cluster_environment, kubeconfig_of
from gpu_platform.devcluster.credentials import credentials_file, key_pair, service_account_key, signing_key_file
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.devcluster.hostnode.node import HOST_NODE_TAINT, NODE_NAME
from gpu_platform.devcluster.record import LOOPBACK, ClusterRecord
from gpu_platform.domain.rbac import API_ACCOUNT, RECONCILER_ACCOUNT, STACK_WORKER_ACCOUNT
from gpu_platform.nats.permissions import QueueUser

SERVICE_RANGE = "10.0.0.0/16"

SIMULATED_POD_RANGE = "10.128.0.1/9"
"""Addresses that kwok gives its pods; nothing answers there. The host node's pods show 10.0.0.0/9 addresses."""

POD_STAGES = Path(__file__).with_name("pod_stages.yaml")
"""What kwok does with the pods of simulated nodes."""

BOOTSTRAP = "bootstrap"
"""Not a process that stays but a step: the Pulumi program makes what the platform's own processes need."""

STACK = "dev"
"""Whose settings are in `Pulumi.dev.yaml`."""

QUOTA_PERIOD_SECONDS = 15
"""Between two full counts of the objects under quotas, so that kinds that come after the start are counted soon: with
the default of five minutes their creation is refused for as long."""

AUDIT_PERIOD_SECONDS = 60
"""Few stacks, and a person who looks on."""

ACCESSOR_COMMAND = (sys.executable, "-m", "gpu_platform.file_browser", "$(POD_IP)", "5000", "/data")
"""The file browser of storages on the host node, which runs commands and no images. It only reads."""


@dataclass(frozen=True)
class Store:
    health_url: str
    directory: Path


@dataclass(frozen=True)
class HttpReady:
    """Ready when this URL answers 200 (TLS with the cluster's own authority and the admin certificate)."""

    url: str


@dataclass(frozen=True)
class NodeReady:
    """Ready when the API server shows this node as Ready."""

    name: str


@dataclass(frozen=True)
class Finished:
    """A step: ready when it has ended with exit code 0, and not started again then."""


@dataclass(frozen=True)
class ProcessSpec:
    name: str
    argv: tuple[str, ...]
    ready: HttpReady | NodeReady | Finished
    address: str
    after: tuple[str, ...] = ()
    """Processes that must be ready before this one starts; it stops before them."""

    environment: Mapping[str, str] = field(default_factory=dict)
    needs_definitions: bool = False
    """Whether it starts only once our custom resource definitions exist; see `definitions`."""

    store: Store | None = None
    """What the process writes to, if it is restarted when it can write there again; see `supervisor`."""


def plan_processes(directory: ClusterDirectory, record: ClusterRecord, path: str) -> tuple[ProcessSpec, ...]:
    """Every process of the cluster, in an order in which each comes after those it needs; `path` is the caller's."""
    cluster = (
        _etcd(directory, record),
        _nats(directory, record),
        _api_server(directory, record),
        _controller_manager(directory, record),
        _kubernetes_client_process(directory, record, "kube-scheduler"),
        _kwok(directory, record),
        _host_node(directory, record, path),
    )
    platform = (_bootstrap(directory, record, path), _reconciler(directory, record), _api(directory, record))
    stacks = (_stack_worker(directory, record, path),) if record.stack_worker else ()
    return (*cluster, *platform, *stacks) if record.platform else cluster


def _etcd(directory: ClusterDirectory, record: ClusterRecord) -> ProcessSpec:
    client = f"https://{LOOPBACK}:{record.ports['etcd']}"
    peer = f"http://{LOOPBACK}:{record.ports['etcd-peer']}"
    server = key_pair(directory.pki, "server")
    return ProcessSpec(
        name="etcd",
        argv=(
            record.binaries["etcd"],
            "--name=dev",
            f"--data-dir={directory.etcd_data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=dev={peer}",
            f"--cert-file={server.certificate}",
            f"--key-file={server.key}",
            f"--trusted-ca-file={key_pair(directory.pki, 'ca').certificate}",
            "--client-cert-auth",
            "--auto-compaction-retention=1h",
            "--quota-backend-bytes=4294967296",
            "--logger=zap",
            "--log-level=warn",
        ),
        ready=HttpReady(f"{client}/readyz"),
        address=client,
    )


def _nats(directory: ClusterDirectory, record: ClusterRecord) -> ProcessSpec:
    health = f"http://{LOOPBACK}:{record.ports['nats-monitor']}/healthz"
    return ProcessSpec(
        name="nats-server",
        argv=(record.binaries["nats-server"], "--config", str(directory.nats_config)),
        ready=HttpReady(health),
        address=record.nats_url,
        store=Store(health, directory.nats_data),
    )


def _api_server(directory: ClusterDirectory, record: ClusterRecord) -> ProcessSpec:
    pki = directory.pki
    authority = key_pair(pki, "ca").certificate
    server, etcd, kubelet = (key_pair(pki, name) for name in ("server", "etcd-client", "kubelet-client"))
    return ProcessSpec(
        name="kube-apiserver",
        argv=(
            record.binaries["kube-apiserver"],
            f"--etcd-servers=https://{LOOPBACK}:{record.ports['etcd']}",
            f"--etcd-cafile={authority}",
            f"--etcd-certfile={etcd.certificate}",
            f"--etcd-keyfile={etcd.key}",
            f"--bind-address={LOOPBACK}",
            # The `kubernetes` Service's endpoint; loopback is refused there, and nothing here dials it.
            "--advertise-address=192.0.2.1",
            f"--secure-port={record.ports['kube-apiserver']}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--client-ca-file={authority}",
            f"--kubelet-certificate-authority={authority}",
            f"--kubelet-client-certificate={kubelet.certificate}",
            f"--kubelet-client-key={kubelet.key}",
            # Without this, `pods/log` dials the node's host name.
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={service_account_key(pki)}",
            f"--service-account-signing-key-file={service_account_key(pki)}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--anonymous-auth=false",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--allow-privileged=true",
            f"--audit-policy-file={directory.audit_policy}",
            f"--audit-log-path={directory.audit_log}",
            "--audit-log-maxsize=100",
            "--audit-log-maxbackup=2",
            "--profiling=false",
        ),
        ready=HttpReady(f"{record.api_server_url}/readyz"),
        address=record.api_server_url,
        after=("etcd",),
    )


def _controller_manager(directory: ClusterDirectory, record: ClusterRecord) -> ProcessSpec:
    spec = _kubernetes_client_process(
        directory,
        record,
        "kube-controller-manager",
        f"--service-account-private-key-file={service_account_key(directory.pki)}",
        f"--root-ca-file={key_pair(directory.pki, 'ca').certificate}",
        "--use-service-account-credentials=true",
        f"--resource-quota-sync-period={QUOTA_PERIOD_SECONDS}s",
    )
    return replace(spec, needs_definitions=record.platform)


def _kubernetes_client_process(
    directory: ClusterDirectory, record: ClusterRecord, name: str, *extra: str
) -> ProcessSpec:
    server = key_pair(directory.pki, "server")
    address = f"https://{LOOPBACK}:{record.ports[name]}"
    return ProcessSpec(
        name=name,
        argv=(
            record.binaries[name],
            f"--kubeconfig={kubeconfig_of(directory, name)}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={record.ports[name]}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            "--leader-elect=false",
            # The defaults (20 and 30) make 150 Deployments take 36 s instead of 5.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--profiling=false",
            *extra,
        ),
        ready=HttpReady(f"{address}/healthz"),
        address=address,
        after=("kube-apiserver",),
    )


def _kwok(directory: ClusterDirectory, record: ClusterRecord) -> ProcessSpec:
    address = f"{LOOPBACK}:{record.ports['kwok']}"
    return ProcessSpec(
        name="kwok",
        argv=(
            record.binaries["kwok"],
            f"--kubeconfig={kubeconfig_of(directory, 'kwok')}",
            # Its own default is a file in the user's home, which would make one machine differ from another.
            f"--config={POD_STAGES}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            f"--cidr={SIMULATED_POD_RANGE}",
            f"--node-ip={LOOPBACK}",
            f"--server-address={address}",
        ),
        ready=HttpReady(f"http://{address}/healthz"),
        address=f"http://{address}",
        after=("kube-apiserver",),
    )


def _host_node(directory: ClusterDirectory, record: ClusterRecord, path: str) -> ProcessSpec:
    server = key_pair(directory.pki, "server")
    return ProcessSpec(
        name="host-node",
        argv=(
            sys.executable,
            "-m",
            "gpu_platform.devcluster.hostnode",
            f"--kubeconfig={kubeconfig_of(directory, 'host-node')}",
            f"--root={record.pods}",
            f"--tls-cert={server.certificate}",
            f"--tls-key={server.key}",
            f"--client-ca={key_pair(directory.pki, 'ca').certificate}",
            f"--gpus={record.gpus}",
            f"--admin-kubeconfig={directory.kubeconfig}",
            f"--volumes={directory.volumes}",
        ),
        ready=NodeReady("host"),
        address="node/host",
        after=("kube-apiserver",),
        # Its pods inherit PATH: their `python3` is the one that has the platform's packages.
        environment={"PATH": add_own_programs(path)},
    )


def _bootstrap(directory: ClusterDirectory, record: ClusterRecord, path: str) -> ProcessSpec:
    return ProcessSpec(
        name=BOOTSTRAP,
        argv=(sys.executable, "-m", "infra.bootstrap", "up", "--stack", STACK),
        ready=Finished(),
        address=f"stack {STACK}",
        after=("kube-apiserver",),
        environment={
            **cluster_environment(directory, record, path),
            # Between an object's creation and its place in the state, a kill loses it: the next run takes it over, as
            # it does what a cluster holds from before the program made it. A person's own `pulumi up` refuses instead.
            "PULUMI_K8S_UPSERT_EXISTING_OBJECTS": "true",
        },
    )


def _reconciler(directory: ClusterDirectory, record: ClusterRecord) -> ProcessSpec:
    address = f"{LOOPBACK}:{record.ports['reconciler']}"
    return ProcessSpec(
        name="reconciler",
        argv=(sys.executable, "-m", "reconciler"),
        ready=HttpReady(f"http://{address}/readyz"),
        address=f"http://{address}",
        after=("kube-apiserver", "nats-server", BOOTSTRAP),
        environment={
            "GPU_PLATFORM_RECONCILER_KUBECONFIG": str(kubeconfig_of(directory, RECONCILER_ACCOUNT)),
            "GPU_PLATFORM_RECONCILER_NATS_URL": record.nats_url,
            "GPU_PLATFORM_RECONCILER_NATS_CREDENTIALS": str(credentials_file(directory, QueueUser.FUNCTIONS)),
            "GPU_PLATFORM_RECONCILER_NATS_SYSTEM_CREDENTIALS": str(credentials_file(directory, QueueUser.SYSTEM)),
            "GPU_PLATFORM_RECONCILER_NATS_SIGNING_KEY": str(signing_key_file(directory)),
            # The host node runs commands, not images: with the interpreter that has this package.
            "GPU_PLATFORM_RECONCILER_SIDECAR_COMMAND": f"{sys.executable},-m,serverless.sidecar",
            "GPU_PLATFORM_RECONCILER_ACCESSOR_COMMAND": ",".join(ACCESSOR_COMMAND),
            # Simulated nodes would only pretend to fill a storage.
            "GPU_PLATFORM_RECONCILER_STORAGE_NODE_SELECTOR": f"kubernetes.io/hostname={NODE_NAME}",
            "GPU_PLATFORM_RECONCILER_STORAGE_TOLERATIONS": HOST_NODE_TAINT,
            "GPU_PLATFORM_RECONCILER_PROBE_ADDRESS": address,
            "GPU_PLATFORM_RECONCILER_METRICS_ADDRESS": f"{LOOPBACK}:{record.ports['reconciler-metrics']}",
        },
    )


def _api(directory: ClusterDirectory, record: ClusterRecord) -> ProcessSpec:
    return ProcessSpec(
        name="api",
        argv=(sys.executable, "-m", "platform_api"),
        ready=HttpReady(f"{record.probe_url}/readyz"),
        address=record.platform_url,
        after=("kube-apiserver", "nats-server", BOOTSTRAP),
        environment={
            "GPU_PLATFORM_API_KUBECONFIG": str(kubeconfig_of(directory, API_ACCOUNT)),
            "GPU_PLATFORM_API_NATS_URL": record.nats_url,
            "GPU_PLATFORM_API_NATS_CREDENTIALS": str(credentials_file(directory, QueueUser.API)),
            "GPU_PLATFORM_API_HTTP_ADDR": f"{LOOPBACK}:{record.ports['api']}",
            "GPU_PLATFORM_API_METRICS_ADDRESS": f"{LOOPBACK}:{record.ports['api-metrics']}",
            "GPU_PLATFORM_API_PROBE_ADDRESS": f"{LOOPBACK}:{record.ports['api-probes']}",
            # The host node's pods listen on loopback addresses of this machine.
            "GPU_PLATFORM_API_DEVELOPMENT_ADDRESSES": "true",
        },
    )


def _stack_worker(directory: ClusterDirectory, record: ClusterRecord, path: str) -> ProcessSpec:
    address = f"{LOOPBACK}:{record.ports['stack-worker']}"
    return ProcessSpec(
        name="stack-worker",
        argv=(sys.executable, "-m", "stacks.worker"),
        ready=HttpReady(f"http://{address}/readyz"),
        address=f"http://{address}",
        after=("kube-apiserver", BOOTSTRAP),
        environment={
            **cluster_environment(directory, record, path),
            "GPU_PLATFORM_STACK_WORKER_KUBECONFIG": str(kubeconfig_of(directory, STACK_WORKER_ACCOUNT)),
            "GPU_PLATFORM_STACK_WORKER_AUDIT_PERIOD_SECONDS": str(AUDIT_PERIOD_SECONDS),
            "GPU_PLATFORM_STACK_WORKER_PROBE_ADDRESS": address,
            "GPU_PLATFORM_STACK_WORKER_METRICS_ADDRESS": f"{LOOPBACK}:{record.ports['stack-worker-metrics']}",
        },
    )
