"""The loop behind one probe of one running container. The pod's worker starts and cancels it."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from gpu_platform.devcluster.hostnode.processes.handlers import Outcome
from gpu_platform.devcluster.hostnode.processes.probes import Probe, ProbeCount, ProbeKind

Report = Callable[[Probe, Outcome, bool | None], None]
"""Takes each result together with the verdict that holds after it."""


async def run_probe(probe: Probe, check: Callable[[], Awaitable[Outcome]], report: Report) -> None:
    """Check and report until cancelled; a startup probe ends with its verdict."""
    await asyncio.sleep(probe.initial_delay_seconds)
    count = ProbeCount()
    while True:
        outcome = await check()
        count = count.after(outcome.succeeded, probe)
        report(probe, outcome, count.verdict)
        if probe.kind is ProbeKind.STARTUP and count.verdict is not None:
            return
        # A little chance keeps the probes of a hundred pods from falling into step.
        await asyncio.sleep(probe.period_seconds * (0.95 + 0.1 * random.random()))
