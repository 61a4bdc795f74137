"""Delays grow, stay within their bounds, and differ."""

from hypothesis import given
from hypothesis import strategies as st

from gpu_platform.clock import Backoff


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_every_delay_is_within_its_bounds(failures: int, chance: float) -> None:
    delay = Backoff(first=0.05, longest=60.0, chance=lambda: chance).delay(failures)

    assert 0.05 <= delay <= 60.0


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first=1.0, longest=10.0, chance=lambda: 0.0)

    assert [backoff.delay(failures) for failures in range(1, 7)] == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_chance_spreads_them_over_the_upper_half() -> None:
    delays = {Backoff(first=0.1, longest=60.0).delay(20) for _ in range(100)}

    assert len(delays) > 50
    assert min(delays) >= 30
