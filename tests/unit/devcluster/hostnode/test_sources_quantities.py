import pytest

from gpu_platform.devcluster.hostnode.sources import count_in


@pytest.mark.parametrize(
    ("quantity", "divisor", "want"),
    [
        ("2Gi", "1Mi", 2048),
        ("1500m", "1", 2),
        ("1500m", "1m", 1500),
        ("1", "0", 1),
        ("2", "1", 2),
    ],
)
def test_a_quantity_is_counted_in_its_divisor_and_rounded_up(quantity: str, divisor: str, want: int) -> None:
    assert count_in(quantity, divisor) == want
