"""The GPUs' own figures, of an exporter that speaks Prometheus' text format, such as NVIDIA's DCGM exporter.

Read now and then, so that no request waits for the exporter. A line that cannot be parsed costs that line only.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import httpx
from prometheus_client.parser import text_string_to_metric_families

from platform_api.http.errors import not_found, unavailable

NAMES = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_GPU_UTIL")
"""Memory in MiB, and how busy a GPU was in percent of the time."""

# Exporters and versions of them differ; a label that Prometheus itself has set comes last.
NODE_LABELS = ("Hostname", "hostname", "node", "instance")

GPU_LABELS = ("gpu", "minor_number", "device")
UUID_LABELS = ("UUID", "uuid")
PRODUCT_LABELS = ("modelName", "product", "gpu_product")
PARTITION_LABELS = ("GPU_I_ID",)

# Where Prometheus had labels of its own, it has renamed those of the exporter, which are the ones that are meant.
NAMESPACE_LABELS = ("exported_namespace", "namespace")

POD_LABELS = ("exported_pod", "pod")

LARGEST_VALUE = 1e12
"""DCGM says by values near 2**63 that it does not know one."""

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
"""Chosen by feel: exporters themselves ask the GPUs every 1 to 30 s."""

PATIENCE_SECONDS = 2.0
"""For a whole answer. An exporter reads from memory, and answers within milliseconds."""

LARGEST_ANSWER = 32 << 20
"""About 5,000 GPUs with all figures that DCGM knows. What is larger is no exporter's answer."""


@dataclass(frozen=True)
class Device:
    """One GPU, or one partition (MIG) of one."""

    node: str
    gpu: str
    uuid: str
    product: str
    partition: str


@dataclass(frozen=True)
class Reading:
    """What one device says, to the pod that uses it. None: it did not say."""

    device: Device
    namespace: str
    pod: str
    used_mib: float | None = None
    free_mib: float | None = None
    utilization_percent: float | None = None

    @property
    def total_mib(self) -> float | None:
        return None if self.used_mib is None or self.free_mib is None else self.used_mib + self.free_mib


@dataclass(frozen=True)
class Totals:
    device_count: int = 0
    used_mib: int = 0
    free_mib: int = 0
    average_utilization_percent: float = 0

    @property
    def total_mib(self) -> int:
        return self.used_mib + self.free_mib


def parse_readings(text: str) -> tuple[Reading, ...]:
    """Sorted by device. Empty for a text without a word about GPUs."""
    found: dict[tuple[Device, str, str], Reading] = {}
    for name, labels, value in _parse_samples(text):
        device = Device(
            _first(labels, NODE_LABELS),
            _first(labels, GPU_LABELS),
            _first(labels, UUID_LABELS),
            _first(labels, PRODUCT_LABELS),
            _first(labels, PARTITION_LABELS),
        )
        key = (device, _first(labels, NAMESPACE_LABELS), _first(labels, POD_LABELS))
        reading = found.get(key) or Reading(*key)
        match name:
            case "DCGM_FI_DEV_FB_USED":
                found[key] = replace(reading, used_mib=value)
            case "DCGM_FI_DEV_FB_FREE":
                found[key] = replace(reading, free_mib=value)
            case "DCGM_FI_DEV_GPU_UTIL":
                found[key] = replace(reading, utilization_percent=value)
    return tuple(sorted(found.values(), key=_order))


def sum_readings(readings: Iterable[Reading]) -> Totals:
    """Each device once, however many pods share it."""
    devices = {reading.device: reading for reading in readings}
    utilizations = [each.utilization_percent for each in devices.values() if each.utilization_percent is not None]
    return Totals(
        device_count=len(devices),
        used_mib=round(sum(each.used_mib or 0 for each in devices.values())),
        free_mib=round(sum(each.free_mib or 0 for each in devices.values())),
        average_utilization_percent=round(sum(utilizations) / len(utilizations), 2) if utilizations else 0,
    )


def select_pods(readings: Iterable[Reading], namespace: str, pods: Sequence[str]) -> tuple[Reading, ...]:
    return tuple(each for each in readings if each.namespace == namespace and each.pod in pods)


def _parse_samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    # Not `splitlines`, which also splits within a label's value.
    for line in text.split("\n"):
        if not line.startswith(NAMES):
            continue
        try:
            samples = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
        except (ValueError, IndexError, KeyError):
            continue
        for sample in samples:
            if sample.name in NAMES and math.isfinite(sample.value) and 0 <= sample.value < LARGEST_VALUE:
                yield sample.name, sample.labels, sample.value


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _order(reading: Reading) -> tuple[str, int, str, str, str, str, str]:
    device = reading.device
    number = int(device.gpu) if device.gpu.isascii() and device.gpu.isdecimal() and len(device.gpu) < 10 else 0
    return device.node, number, device.gpu, device.uuid, device.partition, reading.namespace, reading.pod


class ExporterError(Exception):
    """There are no figures. The message is for everybody: it names no hosts and no paths."""


async def read_exporter(client: httpx.AsyncClient, url: str) -> str:
    """The text; ExporterError when there is none in time."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), client.stream("GET", url) as answer:
            if answer.status_code != httpx.codes.OK:
                raise ExporterError(f"it answers {answer.status_code}")
            content = bytearray()
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > LARGEST_ANSWER:
                    raise ExporterError("its answer is too large")
            return content.decode(errors="replace")
    except (TimeoutError, httpx.TimeoutException):
        raise ExporterError("no answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL):
        raise ExporterError("no connection") from None


class GpuReader:
    def __init__(self, url: str | None, now: Callable[[], datetime]) -> None:
        self._url = url
        self._now = now
        self.problem: str | None = "it was not asked yet"
        """Why there are no figures, in words; None while there are."""

        self.readings: tuple[Reading, ...] = ()
        self.read_at: datetime | None = None

    @property
    def is_configured(self) -> bool:
        return self._url is not None

    @property
    def is_connected(self) -> bool:
        return self.is_configured and self.problem is None

    def require_readings(self) -> tuple[datetime, tuple[Reading, ...]]:
        """When the exporter was asked, and its figures; 404 where none is configured, 503 while it cannot be asked."""
        if not self.is_configured:
            raise not_found("gpu_metrics_not_configured", "this platform does not ask its GPUs (nvidiaMetricsEndpoint)")
        if self.problem is not None or self.read_at is None:
            raise unavailable(f"the GPUs cannot be asked just now: {self.problem}")
        return self.read_at, self.readings

    async def run(self) -> None:
        if self._url is None:
            return
        # Without the machine's proxy: an exporter is in the cluster.
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                await self.read(client, self._url)
                await asyncio.sleep(INTERVAL_SECONDS)

    async def read(self, client: httpx.AsyncClient, url: str) -> None:
        """Old figures are forgotten when there are no new ones."""
        before = self.problem
        try:
            # Thousands of GPUs take a second, in which nobody else would be served.
            self.readings = await asyncio.to_thread(parse_readings, await read_exporter(client, url))
            self.read_at = self._now()
            self.problem = None if self.readings else "its answer says nothing about GPUs"
        except ExporterError as error:
            self.readings, self.problem = (), str(error)
        except Exception:
            # These figures are never worth the process that everybody else needs.
            log.exception("gpu-exporter.unreadable")
            self.readings, self.problem = (), "its answer cannot be read"
        if before != self.problem:
            log.info("gpu-exporter.changed", extra={"problem": self.problem})
