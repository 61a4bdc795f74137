"""The platform's figures, as Prometheus reads them."""

from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from platform_api.health.collector import Figures, build_metrics
from platform_api.health.gpu_readings import parse_readings
from platform_api.health.inventory import read_nodes
from tests.support.builders import make_stock, make_unit
from tests.support.exporter import exporter_text
from tests.unit.platform_api.health.nodes import make_node

NAMES = (
    "runtime_metrics_scrape_success",
    "runtime_kubernetes_up",
    "runtime_nats_up",
    "runtime_nats_writable",
    "runtime_kubernetes_nodes_total",
    "runtime_kubernetes_nodes_ready",
    "runtime_kubernetes_node_ready",
    "runtime_kubernetes_node_gpu_capacity",
    "runtime_kubernetes_node_gpu_allocatable",
    "runtime_nvidia_metrics_up",
    "runtime_nvidia_gpu_devices_total",
    "runtime_nvidia_gpu_memory_used_mib",
    "runtime_nvidia_gpu_memory_free_mib",
    "runtime_nvidia_gpu_memory_total_mib",
    "runtime_nvidia_gpu_utilization_percent",
    "runtime_gpu_units",
    "runtime_gpu_storages",
    "runtime_gpu_storage_prepare",
    "runtime_gpu_storage_accessor",
)

CURRENT = Figures(
    is_connected=True,
    is_listed=True,
    nodes=read_nodes([make_node("a", product="A100"), make_node("b", ready=False)]),
    units=(make_stock("s-0"), make_stock("s-1"), make_unit("new"), make_unit("demo") | {"status": {"phase": "Ready"}}),
)


def scrape(figures: Figures) -> list[str]:
    class Fixed(Collector):
        def collect(self) -> Iterable[Metric]:
            return build_metrics(figures)

    registry = CollectorRegistry()
    registry.register(Fixed())
    return generate_latest(registry).decode().splitlines()


def test_parity_67_every_name_is_announced_with_and_without_kubernetes() -> None:
    for figures in (CURRENT, Figures(is_connected=False, is_listed=False)):
        announced = [line.split()[2] for line in scrape(figures) if line.startswith("# TYPE")]
        assert sorted(announced) == sorted(NAMES)


def test_nodes_and_gpus_are_counted() -> None:
    lines = scrape(CURRENT)

    assert "runtime_metrics_scrape_success 1.0" in lines
    assert "runtime_kubernetes_up 1.0" in lines
    assert "runtime_kubernetes_nodes_total 2.0" in lines
    assert "runtime_kubernetes_nodes_ready 1.0" in lines
    assert 'runtime_kubernetes_node_ready{node="a"} 1.0' in lines
    assert 'runtime_kubernetes_node_ready{node="b"} 0.0' in lines
    assert 'runtime_kubernetes_node_gpu_capacity{gpu_product="A100",node="a"} 8.0' in lines
    assert 'runtime_kubernetes_node_gpu_allocatable{gpu_product="H100",node="b"} 8.0' in lines


def test_units_are_counted_by_lifecycle_and_phase_and_no_phase_is_unknown() -> None:
    lines = scrape(CURRENT)

    assert 'runtime_gpu_units{lifecycle="stock",phase="Ready"} 2.0' in lines
    assert 'runtime_gpu_units{lifecycle="instance",phase="Ready"} 1.0' in lines
    assert 'runtime_gpu_units{lifecycle="instance",phase="Unknown"} 1.0' in lines


def test_parity_67_a_scrape_without_kubernetes_says_so_and_repeats_no_old_figures() -> None:
    away = Figures(is_connected=False, is_listed=True, nodes=CURRENT.nodes, units=CURRENT.units)

    figures = [line for line in scrape(away) if not line.startswith("#")]

    assert figures == [
        "runtime_metrics_scrape_success 0.0",
        "runtime_kubernetes_up 0.0",
        "runtime_nvidia_metrics_up 0.0",
        "runtime_nvidia_gpu_devices_total 0.0",
    ]


def test_each_gpu_says_how_it_is_while_kubernetes_is_away_too() -> None:
    lines = scrape(Figures(is_connected=False, is_listed=False, gpus=parse_readings(exporter_text())))

    labels = 'gpu="0",gpu_product="NVIDIA H100",node="node-a",partition="",uuid="GPU-a"'
    assert "runtime_nvidia_metrics_up 1.0" in lines
    assert "runtime_nvidia_gpu_devices_total 2.0" in lines
    assert f"runtime_nvidia_gpu_memory_total_mib{{{labels}}} 81920.0" in lines
    assert f"runtime_nvidia_gpu_utilization_percent{{{labels}}} 75.0" in lines


@pytest.mark.parametrize(
    ("is_up", "is_writable", "shown"),
    [
        (None, None, []),
        (True, True, ["runtime_nats_up 1.0", "runtime_nats_writable 1.0"]),
        (True, False, ["runtime_nats_up 1.0", "runtime_nats_writable 0.0"]),
        (False, False, ["runtime_nats_up 0.0", "runtime_nats_writable 0.0"]),
    ],
)
def test_nats_is_shown_where_there_is_one(*, is_up: bool | None, is_writable: bool | None, shown: list[str]) -> None:
    lines = scrape(Figures(is_connected=True, is_listed=True, is_queue_up=is_up, is_queue_writable=is_writable))

    assert [line for line in lines if line.startswith("runtime_nats_")] == shown


def test_a_scrape_before_everything_was_listed_is_no_success() -> None:
    lines = scrape(Figures(is_connected=True, is_listed=False, nodes=CURRENT.nodes))

    assert "runtime_kubernetes_up 1.0" in lines
    assert "runtime_metrics_scrape_success 0.0" in lines
    assert not [line for line in lines if line.startswith("runtime_kubernetes_nodes_total")]
