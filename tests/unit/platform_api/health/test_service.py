"""Health, as a function of what is known."""

from datetime import timedelta
from typing import Any

from gpu_platform.api_models.health import HealthView, InventoryView
from gpu_platform.domain.json_text import Json
from platform_api.health.gpu_readings import parse_readings
from platform_api.health.service import Observed, build_health, build_report
from tests.support.builders import NOW, make_pool, make_stock, make_unit
from tests.support.exporter import exporter_text
from tests.unit.platform_api.health.nodes import make_node


def observed(**seen: Any) -> Observed:
    known: Json = {
        "started_at": NOW - timedelta(seconds=90),
        "now": NOW,
        "kube_error": None,
        "unlisted": (),
        "keys_are_missing": False,
    }
    return Observed(**(known | seen))


def shown_pool(name: str = "pool", replicas: int = 2, *, status: Json | None = None, **spec: Any) -> Json:
    pool = make_pool(replicas, status=status, **spec)
    pool["metadata"] |= {"name": name, "creationTimestamp": "2030-01-01T11:00:00Z"}
    return pool


def test_parity_3_two_nodes_one_of_them_ready_are_counted_and_summed_by_product() -> None:
    nodes = (make_node("a", product="H100", gpus=4), make_node("b", product="H100", gpus=4, ready=False))

    health = build_health(observed(nodes=nodes)).to_json()

    assert health["nodeCount"] == 2
    assert health["readyNodeCount"] == 1
    assert health["totalGpuCapacity"] == health["totalGpuAllocatable"] == 8
    assert health["totalGPUCapacity"] == health["totalGPUAllocatable"] == 8
    assert health["gpuProducts"] == [{"product": "H100", "nodeCount": 2, "capacity": 8, "allocatable": 8}]


def test_products_are_sorted_and_a_gpu_without_a_label_is_of_an_unknown_one() -> None:
    nodes = (
        make_node("c", product=None, gpus=1),
        make_node("b", product="H100", gpus=8),
        make_node("a", product="A100", gpus=2),
    )

    products = build_health(observed(nodes=nodes)).gpu_products

    assert [(each.product, each.capacity) for each in products] == [("A100", 2), ("H100", 8), ("unknown", 1)]


def test_a_node_without_gpus_is_a_node_of_no_product() -> None:
    health = build_health(observed(nodes=(make_node("cpu", product=None, gpus=0),)))

    assert health.node_count == 1
    assert health.gpu_products == ()


def test_stock_is_what_lives_in_the_stock_namespace() -> None:
    units = (make_stock("s-0"), make_stock("s-1", claimed_by="a/b"), make_unit("demo"), make_unit("other", "elsewhere"))

    health = build_health(observed(units=units))

    assert (health.stock_unit_count, health.active_unit_count) == (2, 2)


def test_the_uptime_is_in_whole_seconds_and_never_negative() -> None:
    assert build_health(observed()).uptime_seconds == 90
    assert build_health(observed(started_at=NOW + timedelta(seconds=5))).uptime_seconds == 0


def test_every_field_of_the_view_is_there_under_its_name() -> None:
    assert list(build_health(observed(kube_error="gone", gpu_error="away", queue_error="full")).to_json()) == [
        "startedAt",
        "uptimeSeconds",
        "kubernetesConnected",
        "nodeCount",
        "readyNodeCount",
        "kubeError",
        "stockUnitCount",
        "activeUnitCount",
        "totalGpuCapacity",
        "totalGpuAllocatable",
        "totalGPUCapacity",
        "totalGPUAllocatable",
        "gpuProducts",
        "nvidiaMetricsConnected",
        "nvidiaMetricsError",
        "gpuDeviceCount",
        "totalGpuMemoryMiB",
        "usedGpuMemoryMiB",
        "freeGpuMemoryMiB",
        "averageGpuUtilizationPercent",
        "natsConnected",
        "natsError",
        "degraded",
    ]


def test_what_health_and_inventory_both_say_has_one_name() -> None:
    common = HealthView.model_fields.keys() & InventoryView.model_fields.keys()
    assert {"total_gpu_capacity", "total_gpu_allocatable", "node_count"} <= common
    assert all(HealthView.model_fields[name].alias == InventoryView.model_fields[name].alias for name in common)


def test_when_all_is_well_nothing_is_degraded() -> None:
    full = shown_pool(status={"phase": "Ready", "available": 2})

    health = build_health(observed(nodes=(make_node("a"),), pools=(full,)))

    assert health.kubernetes_connected
    assert health.kube_error is None
    assert health.degraded == ()


def test_each_cause_is_a_sentence() -> None:
    health = build_health(
        observed(
            kube_error="no route to host",
            unlisted=("gpuunits", "nodes"),
            keys_are_missing=True,
            nodes=(make_node("a"), make_node("b", ready=False)),
            pools=(
                shown_pool("lost", status={"phase": "Failed", "conditions": [_not_ready("there is no GPUSpec 'x'")]}),
                shown_pool("low", 3, status={"phase": "Progressing", "available": 1}),
            ),
        )
    )

    assert not health.kubernetes_connected
    assert health.kube_error == "no route to host"
    assert health.degraded == (
        "Kubernetes cannot be used: no route to host.",
        "Not listed yet: gpuunits, nodes.",
        "1 of 2 nodes are not ready: b.",
        "Stock pools have failed: lost (there is no GPUSpec 'x').",
        "Stock pools are not full: low (1 of 3).",
        "The API keys have not been read yet, so nobody can be let in.",
    )


def test_parity_4_the_gpus_own_figures_are_summed() -> None:
    health = build_health(observed(gpus=parse_readings(exporter_text()))).to_json()

    assert health["nvidiaMetricsConnected"] is True
    assert (health["gpuDeviceCount"], health["averageGpuUtilizationPercent"]) == (2, 37.5)
    assert (health["usedGpuMemoryMiB"], health["freeGpuMemoryMiB"], health["totalGpuMemoryMiB"]) == (
        61_952,
        101_888,
        163_840,
    )


def test_gpus_that_should_be_asked_and_cannot_be_are_said() -> None:
    health = build_health(observed(gpu_error="no answer in time"))

    assert (health.nvidia_metrics_connected, health.nvidia_metrics_error) == (False, "no answer in time")
    assert health.degraded == ("The GPUs' own figures are missing: no answer in time.",)


def test_a_pool_that_is_made_once_lacks_nothing_when_its_stock_was_taken() -> None:
    pool = shown_pool(replenish="Never", status={"phase": "Progressing", "available": 0})

    assert build_health(observed(pools=(pool,))).degraded == ()


def test_a_sentence_names_five_and_counts_the_rest() -> None:
    nodes = tuple(make_node(f"n{number}", ready=False) for number in range(7))

    assert build_health(observed(nodes=nodes)).degraded == (
        "7 of 7 nodes are not ready: n0, n1, n2, n3, n4 and 2 more.",
    )


def test_the_report_counts_stock_by_spec_and_tenants_units_by_phase() -> None:
    ready = make_unit("demo") | {"status": {"phase": "Ready"}}
    units = (make_stock("s-0"), make_stock("s-1", claimed_by="a/b"), ready, make_unit("new"))

    report = build_report(observed(units=units))

    assert report["stock"] == {"g1.1": {"available": 1, "claimed": 1}}
    assert report["units"] == {"Ready": 1, "Unknown": 1}
    assert report["health"]["stockUnitCount"] == 2


def _not_ready(message: str) -> Json:
    return {
        "type": "Ready",
        "status": "False",
        "reason": "InvalidSpec",
        "message": message,
        "lastTransitionTime": NOW.isoformat(),
    }
