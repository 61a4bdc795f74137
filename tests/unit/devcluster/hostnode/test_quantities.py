from decimal import Decimal

import pytest

from gpu_platform.devcluster.hostnode.launch.quantities import count_in, parse_quantity


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", Decimal(0)),
        ("2", Decimal(2)),
        ("1.5", Decimal("1.5")),
        ("500m", Decimal("0.5")),
        ("10u", Decimal("0.00001")),
        ("2k", Decimal(2000)),
        ("2Ki", Decimal(2048)),
        ("1.5Gi", Decimal(1610612736)),
        ("3E", Decimal(3 * 10**18)),
        ("1e3", Decimal(1000)),
        ("1E3", Decimal(1000)),
        ("-1", Decimal(-1)),
    ],
)
def test_a_quantity_is_an_exact_number(text: str, want: Decimal) -> None:
    assert parse_quantity(text) == want


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
