"""Quantities are read and written back as Kubernetes does it. `tests/integration` asks the API server itself."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_platform.domain.quantities import (
    BINARY_SUFFIXES,
    DECIMAL_SUFFIXES,
    QuantityError,
    canonical_quantity,
    format_bytes,
    parse_amount,
    parse_quantity,
)
from tests.support.quantity_texts import (
    ACCEPTED,
    NEGATIVE,
    READ_AS_ZERO_BY_KUBERNETES,
    REFUSED,
    TRIMMED_BY_KUBERNETES,
    WRITTEN_WRONGLY_BY_KUBERNETES,
)

DIGITS = st.text("0123456789", min_size=1, max_size=12)
ENDINGS = st.sampled_from([*BINARY_SUFFIXES, *DECIMAL_SUFFIXES]) | st.builds(
    "{}{}".format, st.sampled_from("eE"), st.integers(-12, 8)
)
TEXTS = st.builds("{}{}{}".format, st.sampled_from(["", "-", "+"]), DIGITS, ENDINGS) | st.builds(
    "{}.{}{}".format, DIGITS, DIGITS, ENDINGS
)


def is_quantity(text: str) -> bool:
    try:
        return parse_quantity(text).is_finite()
    except QuantityError:
        return False


QUANTITIES = TEXTS.filter(is_quantity)

thorough = settings(max_examples=500, deadline=None)


@pytest.mark.parametrize(("text", "amount"), [(text, amount) for text, amount, _ in (*ACCEPTED, *NEGATIVE)])
def test_a_quantity_is_an_exact_amount(text: str, amount: str) -> None:
    assert parse_quantity(text) == Decimal(amount)


@pytest.mark.parametrize(("text", "written"), [(text, written) for text, _, written in (*ACCEPTED, *NEGATIVE)])
def test_the_text_that_the_api_server_returns_is_known(text: str, written: str) -> None:
    assert canonical_quantity(text) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        *REFUSED,
        *READ_AS_ZERO_BY_KUBERNETES,
        *TRIMMED_BY_KUBERNETES,
        *(text for text, _ in WRITTEN_WRONGLY_BY_KUBERNETES),
        *("1\n", "1e21", "1e1000", "1e-1000", "1" * 101, "0" * 10_000),
    ],
)
def test_what_is_no_quantity_is_refused_in_one_sentence(text: str) -> None:
    for function in (parse_quantity, parse_amount, canonical_quantity):
        with pytest.raises(QuantityError) as refusal:
            function(text)
        assert len(str(refusal.value)) < 200


def test_a_refusal_shows_what_a_quantity_looks_like() -> None:
    with pytest.raises(QuantityError, match="'lots' is not a quantity; write it like 16Gi, 500m or 2"):
        parse_quantity("lots")


@pytest.mark.parametrize("text", ["0", "0Gi", "-1", "-16Gi"])
def test_an_amount_is_more_than_zero(text: str) -> None:
    with pytest.raises(QuantityError, match="must be more than zero"):
        parse_amount(text)


def test_an_amount_is_the_quantity_otherwise() -> None:
    assert parse_amount("1.5Gi") == 3 * 2**29


@thorough
@given(QUANTITIES)
def test_writing_a_quantity_keeps_its_amount_to_the_thousandth(text: str) -> None:
    thousandths = Fraction(parse_quantity(text)) * 1_000
    rounded = math.ceil(thousandths) if thousandths > 0 else math.floor(thousandths)

    assert parse_quantity(canonical_quantity(text)) == Fraction(rounded, 1_000)


@thorough
@given(QUANTITIES)
def test_a_written_quantity_is_written_the_same_again(text: str) -> None:
    written = canonical_quantity(text)

    assert canonical_quantity(written) == written


@thorough
@given(st.text(max_size=20) | st.text("0123456789.+-eEinumkKMGTP", max_size=12))
def test_any_text_is_a_quantity_with_digits_or_refused(text: str) -> None:
    assert not is_quantity(text) or any(digit in text for digit in "0123456789")


@thorough
@given(st.integers(0, 2**63 - 1) | st.builds(lambda n, power: n << power, st.integers(1, 4_096), st.integers(0, 50)))
def test_bytes_are_written_as_the_api_server_returns_them(amount: int) -> None:
    text = format_bytes(amount)

    assert parse_quantity(text) == amount
    assert canonical_quantity(text) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (8 * 2**30, "8Gi"), (3 * 2**29, "1536Mi"), (1_024, "1Ki"), (1_000, "1k"), (1_001, "1001")],
)
def test_bytes_take_the_largest_suffix_that_is_exact(amount: int, text: str) -> None:
    assert format_bytes(amount) == text
