"""The bytes that a request keeps in memory: its body, or an answer that its client has not read yet.

The frame opens a holding for each request, and releases it at the request's end. It is found by context, as the
request's id is: what builds an answer has no request at hand.
"""

import contextvars
from typing import Protocol


class Holding(Protocol):
    def grow_to(self, size: int) -> None:
        """Holds so many bytes in all. Raises the refusal where there is no room for them."""

    def release(self) -> None:
        """Holds nothing any more."""


current_holding: contextvars.ContextVar[Holding | None] = contextvars.ContextVar("holding", default=None)


def hold(size: int) -> None:
    """Counts so many bytes for the current request. Raises the refusal where there is no room for them."""
    if (holding := current_holding.get()) is not None:
        holding.grow_to(size)


def release_held() -> None:
    """For a request that goes on after it has dropped its body."""
    if (holding := current_holding.get()) is not None:
        holding.release()
