"""Amounts as `resourceFieldRef` counts them. Pure."""

from decimal import ROUND_CEILING, Decimal

from gpu_platform.domain.quantities import parse_quantity


def count_in(quantity: str, divisor: str) -> int:
    """How often the divisor fits, rounded up; a divisor of 0 means 1."""
    unit = parse_quantity(divisor) or Decimal(1)
    return int((parse_quantity(quantity) / unit).to_integral_value(ROUND_CEILING))
