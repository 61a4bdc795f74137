"""Kubernetes quantities: `16Gi`, `500m`, `1e3`. Read, and written back, exactly as the API server does it.

The text that the server writes back matters because desired objects are compared with live ones: a Deployment
that asks for `1024Mi` reads `1Gi` ever after, and must not look changed.

Stricter than Kubernetes in two points, both by intent: a text without a digit (`Gi`) is an error, where
Kubernetes reads zero; and so is what no machine can hold, an amount of `LIMIT` or more or an exponent of four
digits, which Kubernetes accepts and then writes wrongly (`1000E` comes back as `1`).
"""

import re
from dataclasses import dataclass
from decimal import Decimal

BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Powers of two."""

DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
"""Powers of ten."""

LARGEST_BINARY = 2**63 - 1
"""Amounts with a binary suffix are capped here; those with a decimal one are not."""

LIMIT = 10**21
"""A thousand of the largest decimal suffix."""

LONGEST_TEXT = 100
"""Characters. Chosen by feel: an honest quantity has fewer than twenty."""

NANOS = 10**9
NANOS_IN_MILLI = 10**6

_FORM = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])0*(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE]?)|[eE](?P<exponent>[+-]?0*[0-9]{1,3}))"
)


class QuantityError(ValueError):
    """The text is no quantity; the message says what one looks like."""


def parse_quantity(text: str) -> Decimal:
    """The exact amount. As in Kubernetes, fractions finer than one billionth are rounded up, away from zero."""
    # Through text, because Decimal's arithmetic rounds to 28 digits, and its constructor does not.
    return Decimal(f"{_read(text).nanos}e-9")


def parse_amount(text: str) -> Decimal:
    """A quantity of something that a unit asks for: more than nothing."""
    amount = parse_quantity(text)
    if amount <= 0:
        raise QuantityError(f"{text!r} must be more than zero")
    return amount


def canonical_quantity(text: str) -> str:
    """What the API server returns for this text in a list of resources (requests, limits, a quota's `hard`).

    There, amounts are rounded up to thousandths; then the largest suffix of the same family is taken that
    leaves a whole number, the binary family only from 1024 up.
    """
    quantity = _read(text)
    if quantity.is_kept_as_written():
        return text
    sign = "-" if quantity.nanos < 0 else ""
    millis = _divide_rounding_up(abs(quantity.nanos), NANOS_IN_MILLI)
    whole, thousandths = divmod(millis, 1_000)
    if quantity.suffix in BINARY_SUFFIXES and thousandths == 0 and whole >= 1_024:
        return f"{sign}{_with_binary_suffix(whole)}"
    return f"{sign}{_with_decimal_suffix(millis, as_exponent=quantity.exponent is not None)}"


def format_bytes(amount: int) -> str:
    """Bytes in the form that `canonical_quantity` leaves alone: `16Gi` where that is exact, else decimal."""
    if amount and amount % 1_024 == 0:
        return _with_binary_suffix(amount)
    return _with_decimal_suffix(amount * 1_000)


@dataclass(frozen=True)
class _Quantity:
    """A quantity taken apart: `1.50Ki` has the whole part `1`, the fraction `50` and the suffix `Ki`."""

    nanos: int
    whole: str
    """Without leading zeros."""
    fraction: str
    suffix: str | None
    exponent: int | None

    def is_kept_as_written(self) -> bool:
        """Whether Kubernetes takes the text for canonical as it is, `+1` or `1.500` included.

        Its shortcut looks at the digits only, and only when there are few enough for 64-bit integers.
        """
        digits = f"{self.whole or '0'}{self.fraction}"
        if self.suffix in BINARY_SUFFIXES:
            few = len(self.whole) + BINARY_SUFFIXES[self.suffix] * 3 // 10 <= 14
            return few and self.fraction == "" and int(digits) % 8 != 0
        scale = _power_of_ten(self.suffix, self.exponent) - len(self.fraction)
        return (
            len(digits) <= 18
            and scale >= -3
            and scale % 3 == 0
            and not digits.startswith("0")
            and not digits.endswith("000")
        )


def _read(text: str) -> _Quantity:
    match = _FORM.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if match is None:
        raise QuantityError(f"{text[:LONGEST_TEXT]!r} is not a quantity; write it like 16Gi, 500m or 2")
    whole, fraction, suffix = match["whole"], match["fraction"] or "", match["suffix"]
    exponent = int(match["exponent"]) if match["exponent"] else None
    digits = int(f"{whole}{fraction}" or "0")
    if suffix in BINARY_SUFFIXES:
        nanos = _shift(digits << BINARY_SUFFIXES[suffix], 9 - len(fraction))
        nanos = min(nanos, LARGEST_BINARY * NANOS)
    else:
        nanos = _shift(digits, 9 - len(fraction) + _power_of_ten(suffix, exponent))
    if nanos >= LIMIT * NANOS:
        raise QuantityError(f"{text!r} is larger than any quantity can be")
    return _Quantity(-nanos if match["sign"] == "-" else nanos, whole, fraction, suffix, exponent)


def _power_of_ten(suffix: str | None, exponent: int | None) -> int:
    return DECIMAL_SUFFIXES[suffix or ""] if exponent is None else exponent


def _shift(number: int, places: int) -> int:
    """The number times a power of ten, rounded up."""
    return number * 10**places if places >= 0 else _divide_rounding_up(number, 10**-places)


def _divide_rounding_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _with_binary_suffix(whole: int) -> str:
    return next(
        f"{whole >> power}{suffix}"
        for suffix, power in (*reversed(BINARY_SUFFIXES.items()), ("", 0))
        if whole % (1 << power) == 0
    )


def _with_decimal_suffix(millis: int, *, as_exponent: bool = False) -> str:
    power = -3
    while millis and millis % 1_000 == 0:
        millis //= 1_000
        power += 3
    if millis == 0:
        return "0"
    if as_exponent:
        return f"{millis}e{power}" if power else str(millis)
    return f"{millis}{_SUFFIX_OF_POWER[power]}"


_SUFFIX_OF_POWER = {power: suffix for suffix, power in DECIMAL_SUFFIXES.items()}
