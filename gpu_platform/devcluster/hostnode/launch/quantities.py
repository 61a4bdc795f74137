"""Kubernetes quantities (`500m`, `2Gi`, `1e3`) as exact numbers. Pure."""

from decimal import ROUND_CEILING, Decimal

_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def parse_quantity(text: str) -> Decimal:
    number = text.rstrip("".join({letter for suffix in _FACTORS for letter in suffix}))
    suffix = text[len(number) :]
    return Decimal(number) * _FACTORS[suffix] if suffix else Decimal(text)


def count_in(quantity: str, divisor: str) -> int:
    """How often the divisor fits, rounded up, as `resourceFieldRef` says it; a divisor of 0 means 1."""
    unit = parse_quantity(divisor) or Decimal(1)
    return int((parse_quantity(quantity) / unit).to_integral_value(ROUND_CEILING))
