"""An exporter's text becomes figures, whatever it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_api.gpu_units.views import view_gpu
from platform_api.health.gpu_readings import NAMES, Device, Reading, Totals, parse_readings, select_pods, sum_readings
from tests.support.exporter import exporter_text

H100 = Device("node-a", "0", "GPU-a", "NVIDIA H100", "")

LINES = st.one_of(
    st.text(),
    st.builds(
        lambda name, labels, value: f"{name}{{{labels}}} {value}",
        st.sampled_from([*NAMES, "DCGM_FI_DEV_FB_USED_MORE", "up"]),
        st.one_of(st.text(), st.just('gpu="0"'), st.just('gpu="0",pod="a\\"b"'), st.just('gpu="')),
        st.one_of(st.text(), st.floats().map(str), st.integers().map(str)),
    ),
)


def test_parity_4_devices_are_counted_memory_is_summed_and_utilization_is_a_mean() -> None:
    totals = sum_readings(parse_readings(exporter_text()))

    assert totals == Totals(device_count=2, used_mib=61_952, free_mib=101_888, average_utilization_percent=37.5)
    assert totals.total_mib == 163_840


def test_a_units_gpus_are_those_of_its_pods_in_its_namespace() -> None:
    readings = parse_readings(exporter_text("runtime-instance", "unit-demo-1"))

    assert select_pods(readings, "runtime-instance", ["unit-demo-1"]) == (
        Reading(H100, "runtime-instance", "unit-demo-1", 61_440, 20_480, 75),
    )
    assert select_pods(readings, "runtime-instance-other", ["unit-demo-1"]) == ()
    assert select_pods(readings, "runtime-instance", []) == ()
    assert select_pods(readings, "runtime-instance", ["unit-demo-2"]) == ()


def test_what_prometheus_has_renamed_is_what_is_meant() -> None:
    text = (
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",pod="dcgm-exporter-x",namespace="gpu-operator",'
        'exported_pod="unit-demo-1",exported_namespace="runtime-instance"} 5 1700000000000\n'
    )

    [reading] = parse_readings(text)

    assert (reading.namespace, reading.pod, reading.utilization_percent) == ("runtime-instance", "unit-demo-1", 5)


def test_a_gpu_that_pods_share_counts_once_and_each_partition_for_itself() -> None:
    shared = "".join(f'DCGM_FI_DEV_FB_USED{{gpu="0",UUID="x",pod="{pod}"}} 100\n' for pod in "ab")
    parts = "".join(f'DCGM_FI_DEV_FB_USED{{gpu="1",UUID="y",GPU_I_ID="{part}"}} 10\n' for part in "12")

    assert sum_readings(parse_readings(shared)).used_mib == 100
    assert sum_readings(parse_readings(parts)).used_mib == 20
    assert len(parse_readings(shared)) == 2


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "9223372036854775794", "nothing", ""])
def test_a_value_that_is_none_costs_that_value_only(value: str) -> None:
    text = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} {value}\nDCGM_FI_DEV_FB_USED{{gpu="0"}} 100\n'

    [reading] = parse_readings(text)

    assert (reading.utilization_percent, reading.used_mib, reading.total_mib) == (None, 100, None)
    assert "utilizationPercent" not in view_gpu(reading).to_json()


@given(st.lists(LINES, max_size=20).map("\n".join))
def test_no_text_is_too_strange(text: str) -> None:
    readings = parse_readings(text)
    totals = sum_readings(readings)

    assert totals.device_count <= len(readings)
    assert totals.used_mib >= 0


@given(st.lists(LINES, max_size=5).map("\n".join))
def test_strange_lines_before_good_ones_do_not_matter(noise: str) -> None:
    readings = parse_readings(f"{noise}\n{exporter_text()}")

    assert set(parse_readings(exporter_text())) <= set(readings)
