"""Numbers that Python would read and that are none of JSON: hooks for `json.loads`, each a ValueError in words."""

import math


def refuse_constant(word: str) -> None:
    """NaN and the infinities."""
    raise ValueError(f"{word} is not a number that JSON knows")


def parse_float(text: str) -> float:
    """1e999 is JSON, and no number that can be handed on."""
    number = float(text)
    if math.isinf(number):
        refuse_constant(text)
    return number
