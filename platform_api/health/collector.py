"""The platform's figures for Prometheus, under the names that dashboards know, counted from memory at each scrape.

While Kubernetes is away, its figures are left out rather than repeated: a gap is honest, and
`runtime_metrics_scrape_success` says why. So are those of the GPUs while nothing can be asked about them. The
names of storages are announced without figures.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from platform_api.cluster import Cluster
from platform_api.deps import Deps
from platform_api.health.gpu_readings import GpuReader, Reading
from platform_api.health.inventory import GpuNode, read_nodes
from platform_api.nats_connection import QueueLink

NODE_LABELS = ("node", "gpu_product")
DEVICE_LABELS = ("node", "gpu", "uuid", "gpu_product", "partition")

DEVICE_FIGURES: tuple[tuple[str, str, Callable[[Reading], float | None]], ...] = (
    ("runtime_nvidia_gpu_memory_used_mib", "Used memory of a GPU", lambda reading: reading.used_mib),
    ("runtime_nvidia_gpu_memory_free_mib", "Free memory of a GPU", lambda reading: reading.free_mib),
    ("runtime_nvidia_gpu_memory_total_mib", "Memory of a GPU", lambda reading: reading.total_mib),
    ("runtime_nvidia_gpu_utilization_percent", "Utilization of a GPU", lambda reading: reading.utilization_percent),
)

WITHOUT_FIGURES = (
    ("runtime_gpu_storages", "Storages, by phase", ("phase",)),
    ("runtime_gpu_storage_prepare", "Preparations of storages, by phase", ("phase",)),
    ("runtime_gpu_storage_accessor", "Accessors of storages, by phase", ("phase",)),
)


@dataclass(frozen=True)
class Figures:
    is_connected: bool
    is_listed: bool
    nodes: tuple[GpuNode, ...] = ()
    units: tuple[Json, ...] = ()
    gpus: tuple[Reading, ...] | None = None
    """None where they are not asked, or do not answer."""

    is_queue_up: bool | None = None
    is_queue_writable: bool | None = None
    """Whether NATS is connected, and stores what it is given; None where the API has no NATS."""

    @property
    def are_current(self) -> bool:
        return self.is_connected and self.is_listed


def register_platform_metrics(registry: CollectorRegistry, deps: Deps) -> None:
    registry.register(PlatformCollector(deps.cluster, deps.gpus, deps.queue))


class PlatformCollector(Collector):
    def __init__(self, cluster: Cluster | None, gpus: GpuReader, queue: QueueLink) -> None:
        self._cluster = cluster
        self._gpus = gpus
        self._queue = queue

    def collect(self) -> Iterable[Metric]:
        return build_metrics(observe_figures(self._cluster, self._gpus, self._queue))


def observe_figures(cluster: Cluster | None, reader: GpuReader, queue: QueueLink) -> Figures:
    gpus = reader.readings if reader.is_connected else None
    is_up = queue.problem is None if queue.is_configured else None
    is_writable = is_up and queue.storage_problem is None
    if cluster is None:
        return Figures(is_connected=False, is_listed=False, gpus=gpus, is_queue_up=is_up, is_queue_writable=is_writable)
    return Figures(
        is_connected=cluster.pulse.is_felt,
        is_listed=all(cache.is_synced for cache in cluster.caches),
        nodes=read_nodes(cluster.nodes.objects()),
        units=cluster.units.objects(),
        gpus=gpus,
        is_queue_up=is_up,
        is_queue_writable=is_writable,
    )


def build_metrics(figures: Figures) -> Iterator[Metric]:
    yield _single("runtime_metrics_scrape_success", "1 when all figures are current", figures.are_current)
    yield _single("runtime_kubernetes_up", "1 when Kubernetes answers", figures.is_connected)
    yield _single("runtime_nats_up", "1 when NATS is connected", figures.is_queue_up)
    yield _single("runtime_nats_writable", "1 when NATS stores what it is given", figures.is_queue_writable)
    yield from _node_metrics(figures.nodes if figures.are_current else None)
    yield from _gpu_metrics(figures.gpus)
    yield _unit_metric(figures.units if figures.are_current else ())
    for name, words, labels in WITHOUT_FIGURES:
        yield GaugeMetricFamily(name, words, labels=labels)


def _node_metrics(nodes: Sequence[GpuNode] | None) -> Iterator[Metric]:
    ready_count = None if nodes is None else sum(node.is_ready for node in nodes)
    yield _single("runtime_kubernetes_nodes_total", "Nodes", None if nodes is None else len(nodes))
    yield _single("runtime_kubernetes_nodes_ready", "Nodes that are ready", ready_count)
    ready = GaugeMetricFamily("runtime_kubernetes_node_ready", "1 when the node is ready", labels=("node",))
    capacity = GaugeMetricFamily("runtime_kubernetes_node_gpu_capacity", "GPUs of the node", labels=NODE_LABELS)
    allocatable = GaugeMetricFamily(
        "runtime_kubernetes_node_gpu_allocatable", "GPUs of the node for pods", labels=NODE_LABELS
    )
    for node in nodes or ():
        ready.add_metric((node.name,), node.is_ready)
        capacity.add_metric((node.name, node.product), node.capacity)
        allocatable.add_metric((node.name, node.product), node.allocatable)
    yield from (ready, capacity, allocatable)


def _gpu_metrics(readings: Sequence[Reading] | None) -> Iterator[Metric]:
    """Each device once, however many pods share it."""
    devices = {reading.device: reading for reading in readings or ()}
    yield _single("runtime_nvidia_metrics_up", "1 when the GPUs themselves can be asked", readings is not None)
    yield _single("runtime_nvidia_gpu_devices_total", "GPUs that were asked", len(devices))
    for name, words, value_of in DEVICE_FIGURES:
        family = GaugeMetricFamily(name, words, labels=DEVICE_LABELS)
        for device, reading in devices.items():
            if (value := value_of(reading)) is not None:
                family.add_metric((device.node, device.gpu, device.uuid, device.product, device.partition), value)
        yield family


def _unit_metric(units: Iterable[Json]) -> Metric:
    counts = Counter((_lifecycle(unit), (unit.get("status") or {}).get("phase") or "Unknown") for unit in units)
    family = GaugeMetricFamily("runtime_gpu_units", "Units, by what they are and how", labels=("lifecycle", "phase"))
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family


def _lifecycle(unit: Json) -> str:
    return "stock" if names.is_stock_namespace(unit["metadata"]["namespace"]) else "instance"


def _single(name: str, words: str, value: float | None) -> Metric:
    """Without a value, announced only."""
    family = GaugeMetricFamily(name, words)
    if value is not None:
        family.add_metric((), value)
    return family
