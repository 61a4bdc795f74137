"""Quantities as people write them, right and wrong. The API server confirms every line of these tables."""

import random

ACCEPTED: tuple[tuple[str, str, str], ...] = (
    # text, amount, the text that the API server returns
    ("0", "0", "0"),
    ("-0", "0", "0"),
    ("0Gi", "0", "0"),
    ("1", "1", "1"),
    ("2", "2", "2"),
    ("1000", "1000", "1k"),
    ("1500", "1500", "1500"),
    ("1234567890123456000", "1234567890123456000", "1234567890123456k"),
    ("1234567890123456789", "1234567890123456789", "1234567890123456789"),
    ("0.5", "0.5", "500m"),
    (".5", "0.5", "500m"),
    ("0.1", "0.1", "100m"),
    ("1.25", "1.25", "1250m"),
    ("500m", "0.5", "500m"),
    ("1000m", "1", "1"),
    ("1100m", "1.1", "1100m"),
    ("100k", "100000", "100k"),
    ("1000k", "1000000", "1M"),
    ("1M", "1000000", "1M"),
    ("1G", "1000000000", "1G"),
    ("1T", "1000000000000", "1T"),
    ("1P", "1000000000000000", "1P"),
    ("1.5Gi", "1610612736", "1536Mi"),
    ("16Gi", "17179869184", "16Gi"),
    ("512Mi", "536870912", "512Mi"),
    ("1000Mi", "1048576000", "1000Mi"),
    ("1024Mi", "1073741824", "1Gi"),
    ("1048576Ki", "1073741824", "1Gi"),
    ("1Ti", "1099511627776", "1Ti"),
    ("1Pi", "1125899906842624", "1Pi"),
    ("1Ei", "1152921504606846976", "1Ei"),
    # Below 1024 and beside whole bytes, binary suffixes give way to decimal ones.
    ("0.5Ki", "512", "512"),
    ("1.5Ki", "1536", "1536"),
    ("0.0001Gi", "107374.1824", "107374183m"),
    # Binary amounts end at 2^63 - 1, decimal ones do not.
    ("8Ei", "9223372036854775807", "9223372036854775807"),
    ("100Ei", "9223372036854775807", "9223372036854775807"),
    ("100E", "100000000000000000000", "100E"),
    # E is a suffix on its own and begins an exponent before digits; an exponent stays one.
    ("1E", "1000000000000000000", "1E"),
    ("1e3", "1000", "1e3"),
    ("1E3", "1000", "1E3"),
    ("1e+3", "1000", "1e+3"),
    ("1e4", "10000", "10e3"),
    ("1000e3", "1000000", "1e6"),
    ("1e0", "1", "1e0"),
    ("1000e-3", "1", "1"),
    ("1e-3", "0.001", "1e-3"),
    # Finer than a billionth is rounded up in any quantity, finer than a thousandth in a list of resources.
    ("1n", "0.000000001", "1m"),
    ("0.1n", "0.000000001", "1m"),
    ("1.5u", "0.0000015", "1m"),
    ("1500u", "0.0015", "2m"),
    ("1000.0001", "1000.0001", "1000001m"),
    ("1e-20", "0.000000001", "1e-3"),
    # Oddities that are taken as canonical, because only the digits are looked at.
    ("+1", "1", "+1"),
    ("+8Gi", "8589934592", "8Gi"),
    ("+1Gi", "1073741824", "+1Gi"),
    ("01", "1", "01"),
    ("1.", "1", "1."),
    ("1.500", "1.5", "1.500"),
    ("0.500", "0.5", "500m"),
    ("1.000", "1", "1"),
    ("1.M", "1000000", "1.M"),
)

NEGATIVE: tuple[tuple[str, str, str], ...] = (
    ("-1", "-1", "-1"),
    ("-0.5", "-0.5", "-500m"),
    ("-1024Mi", "-1073741824", "-1Gi"),
    ("-0.1n", "-0.000000001", "-1m"),
    ("-9Ei", "-9223372036854775807", "-9223372036854775807"),
)

REFUSED = (
    *("one", "not-a-quantity", "1 Gi", "1,5", "1_000", "0x10", "NaN", "inf", "\u0661", "\uff11", "1\u00d710"),
    *("1K", "1KI", "1ki", "1gi", "1GI", "1Gib", "1GB", "1i", "1mm", "1e3m", "1e3Gi", "1Eii", "Pi", "Ei"),
    *("--1", "+-1", "1-", "1+1", "1.2.3", "1..", "1e", "1e+", "1e1.5", "1e3e3", "1ee3"),
)

READ_AS_ZERO_BY_KUBERNETES = ("+", "-", ".", "-.", "Ki", "Gi", "m", "k", "e3", ".Mi")
"""Texts without a digit, which we refuse."""

TRIMMED_BY_KUBERNETES = (" 1", "1 ", " 1Gi ")
"""Its JSON decoder does that, its parser does not, and neither do we."""

WRITTEN_WRONGLY_BY_KUBERNETES = (("1000E", "1"), ("1000000000000000000000", "1"))
"""Amounts that have no suffix, which we refuse."""


def make_random_texts(seed: int, count: int) -> tuple[str, ...]:
    """Texts in the neighbourhood of quantities: most are some; none is negative or too large to be one."""
    chance = random.Random(seed)
    return tuple(_make_random_text(chance) for _ in range(count))


def _make_random_text(chance: random.Random) -> str:
    suffixes = ("", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "K", "i", "e")
    exponent = f"{chance.choice('eE')}{chance.choice(('', '+', '-'))}{chance.randrange(13)}"
    fraction = f".{_make_digits(chance, 15)}" if chance.random() < 0.4 else ""
    ending = exponent if chance.random() < 0.2 else chance.choice(suffixes)
    return f"{chance.choice(('', '', '', '+'))}{_make_digits(chance, 6)}{fraction}{ending}"


def _make_digits(chance: random.Random, most: int) -> str:
    zeros = "0" * chance.choice((0, 0, 0, 1, 2, 3))
    return f"{chance.choice(('', '', '0'))}{chance.randrange(10 ** chance.randrange(1, most))}{zeros}"
