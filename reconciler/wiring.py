"""Which controllers run, on which caches. The only place that knows all of them."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from gpu_platform.clock import now_utc
from gpu_platform.controller.loop import Controller, ControllerLoop, KeyFeed, Trigger
from gpu_platform.controller.metrics import Metrics
from gpu_platform.domain.specs import Toleration
from gpu_platform.kube import KubeClient
from gpu_platform.kube.connection import open_client
from gpu_platform.kube.events import EventRecorder
from gpu_platform.kube.fencing import GuardedClient
from gpu_platform.kube.informer import ObjectCache, WatchTiming
from gpu_platform.nats.connection import JetStream, QueueAccess
from reconciler.child_diff import UnitChild
from reconciler.drift import DriftController
from reconciler.functions.controller import FunctionsController
from reconciler.functions.credentials import Signer
from reconciler.functions.queue_link import NOT_CONFIGURED, Duty, QueueLink
from reconciler.functions.scaling import Scaler
from reconciler.functions.worker_logs import WorkerLogs
from reconciler.functions.workers import WorkerStarts
from reconciler.informers import World
from reconciler.invocations_sweep import InvocationsSweep, function_lookup
from reconciler.operations.controller import OperationsController
from reconciler.orphans.controller import OrphansController
from reconciler.orphans.plan import OrphanLimits
from reconciler.process import COMPONENT, Loop, WhileLeading
from reconciler.settings import TAINT, ReconcilerSettings
from reconciler.stock.controller import StockController
from reconciler.storages.controller import StoragesController
from reconciler.storages.resources import StorageSettings
from reconciler.units.controller import UnitsController
from reconciler.units.plan import UnitSettings
from reconciler.units.route_resources import Gateway, IngressClass, RouteSettings
from reconciler.units.serverless_resources import SidecarSettings, find_egress
from reconciler.units.ssh_resources import SshSettings


def build_loops(
    client: KubeClient,
    writer: GuardedClient,
    events: EventRecorder,
    settings: ReconcilerSettings,
    metrics: Metrics,
) -> tuple[Sequence[ObjectCache], Sequence[Loop]]:
    route = build_route_settings(settings)
    with_http_routes = route is not None and route.kind is UnitChild.HTTP_ROUTE
    watch = WatchTiming(timedelta(seconds=settings.resync_seconds), timedelta(seconds=settings.watch_seconds))
    world = World(client, watch, with_http_routes=with_http_routes)
    unit_settings = UnitSettings(
        placeholder_image=settings.placeholder_image,
        blocked_egress=tuple(str(cidr) for cidr in settings.blocked_egress_cidrs),
        dns=settings.dns_pods,
        ssh=SshSettings(settings.ssh_server_image, settings.frp_client_image, settings.ssh_server_cidrs),
        sidecar=build_sidecar_settings(settings),
        route=route,
    )
    units = UnitsController(world, writer, events, unit_settings, now_utc)
    storages = StoragesController(world, writer, events, build_storage_settings(settings), now_utc)
    stock = StockController(world, writer, now_utc)
    takeover = timedelta(seconds=settings.operation_takeover_seconds)
    operations = OperationsController(world, writer, now_utc, takeover=takeover)
    limits = OrphanLimits(
        timedelta(seconds=settings.claim_limit_seconds), timedelta(seconds=settings.orphan_limit_seconds)
    )
    orphans = OrphansController(world, writer, now_utc, limits)
    drift = DriftController(world, writer, events, metrics.registry, now_utc)

    async def sweep(js: JetStream) -> None:
        retention = timedelta(seconds=settings.result_retention_seconds)
        grace = timedelta(seconds=settings.queue_grace_seconds)
        lookup = function_lookup(world.functions, client)
        await InvocationsSweep(js, lookup, retention, now_utc, queue_grace=grace).run()

    # What NATS says about functions brings passes over them.
    news = KeyFeed()
    scaler = Scaler(now_utc, news.send)

    async def open_logs(connections: int) -> KubeClient:
        return await open_client(settings.kubeconfig, f"{COMPONENT}-logs", connections=connections)

    worker_logs = WorkerLogs(world, open_logs, settings.nats_replicas)
    queue = _build_queue_link(settings, (sweep, scaler.follow, worker_logs.follow), lambda: functions.look_at_all())
    setup_problem = unit_settings.sidecar.problem if unit_settings.sidecar else NOT_CONFIGURED
    functions = FunctionsController(
        world,
        writer,
        events,
        queue,
        Signer(settings.nats_signing_key, settings.nats_ca),
        scaler,
        WorkerStarts(metrics.registry, now_utc),
        now_utc,
        setup_problem,
        news.send,
    )
    known: dict[str, tuple[Controller, Sequence[Trigger]]] = {
        "units": (units, units.triggers()),
        "storages": (storages, storages.triggers()),
        "stock": (stock, stock.triggers()),
        "operations": (operations, operations.triggers()),
        "orphans": (orphans, orphans.triggers()),
        "drift": (drift, drift.triggers()),
        "functions": (functions, functions.triggers()),
    }
    loops: list[Loop] = []
    for name in settings.controllers:
        # One worker for the orphans: their one key is the whole cluster.
        workers = 1 if name == "orphans" else settings.workers
        feed = news if name == "functions" else None
        loops.append(ControllerLoop(*known[name], workers=workers, metrics=metrics, feed=feed))
    if "functions" in settings.controllers:
        loops.append(WhileLeading(queue.run))
    return world.caches, loops


def build_route_settings(settings: ReconcilerSettings) -> RouteSettings | None:
    """How public units are reached; None where there are none."""
    target = _find_route_target(settings)
    if target is None or settings.route_domain is None or settings.route_from_namespace is None:
        return None
    return RouteSettings(
        target=target,
        domain=settings.route_domain,
        from_namespace=settings.route_from_namespace,
        from_labels=dict(map(_parse_pair, settings.route_from_labels)),
        scheme=settings.route_scheme,
        annotations=dict(map(_parse_pair, settings.route_annotations)),
    )


def _find_route_target(settings: ReconcilerSettings) -> IngressClass | Gateway | None:
    if settings.route_class is not None:
        return IngressClass(settings.route_class)
    return Gateway(*settings.route_gateway.split("/")) if settings.route_gateway is not None else None


def build_sidecar_settings(settings: ReconcilerSettings) -> SidecarSettings | None:
    """What the sidecars are told; None without NATS."""
    url = settings.nats_workers_url or settings.nats_url
    if url is None:
        return None
    labels = tuple(map(_parse_pair, settings.nats_egress_labels))
    egress, problem = find_egress(url, settings.nats_egress_namespace, labels, settings.nats_egress_cidr)
    return SidecarSettings(
        nats_url=url,
        egress=egress,
        image=settings.sidecar_image,
        command=settings.sidecar_command,
        result_retention=timedelta(seconds=settings.result_retention_seconds),
        grace=timedelta(seconds=settings.worker_grace_seconds),
        has_credentials=settings.nats_signing_key is not None,
        has_authority=settings.nats_ca is not None,
        problem=problem,
    )


def build_storage_settings(settings: ReconcilerSettings) -> StorageSettings:
    return StorageSettings(
        copy_image=settings.copy_image,
        accessor_image=settings.accessor_image,
        accessor_command=settings.accessor_command,
        blocked_egress=tuple(str(cidr) for cidr in settings.blocked_egress_cidrs),
        dns=settings.dns_pods,
        storage_class=settings.storage_class,
        node_selector=dict(map(_parse_pair, settings.storage_node_selector)),
        tolerations=tuple(map(_parse_toleration, settings.storage_tolerations)),
    )


def _parse_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _parse_toleration(taint: str) -> Toleration:
    parts = TAINT.fullmatch(taint)
    fields = parts.groupdict() if parts else {}
    return Toleration.model_validate({**fields, "operator": "Exists" if fields.get("value") is None else "Equal"})


def _build_queue_link(
    settings: ReconcilerSettings, duties: Sequence[Duty], on_storage: Callable[[], None]
) -> QueueLink:
    if settings.nats_url is None:
        return QueueLink(None, None, settings.nats_replicas, COMPONENT)
    access = QueueAccess(settings.nats_url, settings.nats_credentials, settings.nats_ca)
    system = None
    if settings.nats_system_credentials is not None:
        system = QueueAccess(settings.nats_url, settings.nats_system_credentials, settings.nats_ca)
    return QueueLink(access, system, settings.nats_replicas, COMPONENT, duties, on_storage)
