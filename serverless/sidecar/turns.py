"""Which calls a worker runs at the same time: many beside each other, or one alone.

| asks to run   | nothing runs alone | one waits to run alone | one runs alone |
| ------------- | ------------------ | ---------------------- | -------------- |
| beside others | runs               | runs                   | refused        |
| alone         | waits for the rest | refused                | refused        |

While one waits to run alone, the worker takes no more calls, so its turn comes. What is refused goes back to the queue,
for another worker or for later.
"""

import asyncio


class Turns:
    def __init__(self) -> None:
        self._running: set[str] = set()
        self._had_company: set[str] = set()
        self._alone: str | None = None
        """The one that runs alone, or waits for that."""

        self.is_open = asyncio.Event()
        """None runs alone, and none waits for that."""

        self.is_idle = asyncio.Event()
        """Nothing runs."""

        self.is_open.set()
        self.is_idle.set()

    def join(self, invocation_id: str) -> bool:
        """Run it beside others."""
        if self._alone in self._running:
            return False
        self._enter(invocation_id)
        return True

    def reserve(self, invocation_id: str) -> bool:
        """Run it alone: `enter_alone` once `is_idle` is set."""
        if self._alone is not None:
            return False
        self._alone = invocation_id
        self.is_open.clear()
        return True

    def enter_alone(self, invocation_id: str) -> None:
        if self._alone != invocation_id or self._running:
            raise RuntimeError(f"{invocation_id} would not run alone")
        self._enter(invocation_id)

    def leave(self, invocation_id: str) -> None:
        """Whether it ran, or only waited."""
        self._running.discard(invocation_id)
        self._had_company.discard(invocation_id)
        if self._alone == invocation_id:
            self._alone = None
            self.is_open.set()
        if not self._running:
            self.is_idle.set()

    def had_company(self, invocation_id: str) -> bool:
        """At any time since it runs: a neighbour that died with it has left before it is asked about."""
        return invocation_id in self._had_company

    def _enter(self, invocation_id: str) -> None:
        self._running.add(invocation_id)
        self.is_idle.clear()
        if len(self._running) > 1:
            self._had_company |= self._running
