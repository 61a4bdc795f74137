"""How long to wait before trying again: doubling, bounded, and never at the same moment as everybody else."""

import random
from collections.abc import Callable
from dataclasses import dataclass

# 2^20 times any first delay is beyond any longest one; without a limit the power overflows after a bad day.
LARGEST_EXPONENT = 20


@dataclass(frozen=True)
class Backoff:
    """Delays in seconds from `first` to `longest`; `chance` gives numbers in [0, 1)."""

    first: float
    longest: float
    chance: Callable[[], float] = random.random

    def delay(self, failures: int) -> float:
        """After so many failures in a row (the first is 1): between half of the doubled delay and all of it."""
        doubled: float = min(self.first * 2 ** min(failures, LARGEST_EXPONENT), self.longest)
        return max(self.first, doubled * (0.5 + 0.5 * self.chance()))
