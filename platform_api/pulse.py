"""Whether Kubernetes is there, asked twice a second: so that no request has to find out by waiting."""

import asyncio
import logging
import time

from gpu_platform.adapters.kube import KubeClient, KubeError

log = logging.getLogger(__name__)

INTERVAL = 0.5
PATIENCE = 1.4
"""Seconds for one answer. Less than a request's own call gets: what waits behind a hanging one is refused at once."""


class Pulse:
    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._asked = False
        self._lost_at: float | None = None
        self.problem: str | None = None
        """Why Kubernetes cannot be used just now, in words; None while it can, or before it was asked."""

    @property
    def is_felt(self) -> bool:
        """Whether it answered when it was last asked."""
        return self._asked and self.problem is None

    @property
    def lost_seconds(self) -> float:
        """Since when it has not answered; 0 while it does."""
        return time.monotonic() - self._lost_at if self._lost_at is not None else 0.0

    async def run(self) -> None:
        while True:
            began_at = time.monotonic()
            await self.feel()
            await asyncio.sleep(max(0.1, INTERVAL - (time.monotonic() - began_at)))

    async def feel(self) -> None:
        before = self.problem
        details = ""
        try:
            await self._client.text("/readyz", timeout=PATIENCE)
            self.problem = None
            self._lost_at = None
        except KubeError as error:
            self._lost_at = self._lost_at if self._lost_at is not None else time.monotonic()
            self.problem = _in_short(error)
            details = str(error)
        self._asked = True
        if (before is None) != (self.problem is None):
            log.warning("kubernetes.lost" if self.problem else "kubernetes.found", extra={"error": details})


def _in_short(error: KubeError) -> str:
    """Shown to everybody: no hosts, no paths."""
    if error.status:
        return f"it answers {error.status} to the question whether it is ready"
    return "no answer in time" if error.reason == "Timeout" else "no connection"
