"""The reconciler's machinery around the smallest controller there is: a label becomes an annotation, in steps.

`python -m tests.support.mirror_daemon`, with the reconciler's own settings and `MIRROR_NAMESPACE`.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

from gpu_platform.controller.loop import ControllerLoop, Done, Key, Result, Trigger
from gpu_platform.controller.metrics import Metrics
from gpu_platform.domain.json_text import Json
from gpu_platform.kube import KubeClient
from gpu_platform.kube.events import EventRecorder
from gpu_platform.kube.fencing import GuardedClient
from gpu_platform.kube.informer import ObjectCache, WatchTiming
from gpu_platform.kube.paths import CONFIG_MAPS
from reconciler.__main__ import main
from reconciler.settings import ReconcilerSettings

LABEL = "mirror-this"
STEPS = 20
STEP_SECONDS = 0.15
"""A pass takes seconds, so that also a busy machine stops the process before its end."""

SHOWN_WITHIN = 10.0


def mirrored(item: Json) -> tuple[str | None, int, int]:
    """What the annotations say: the label's value, the last step, and the process that wrote it."""
    notes = item["metadata"].get("annotations") or {}
    return notes.get("mirrored"), int(notes.get("step", 0)), int(notes.get("by", 0))


class MirrorController:
    name = "mirror"

    def __init__(self, cache: ObjectCache, writer: GuardedClient, events: EventRecorder) -> None:
        self._cache = cache
        self._writer = writer
        self._events = events

    async def reconcile(self, namespace: str, name: str) -> Result:
        """Many small writes, so that a process can be stopped between two of them."""
        item = self._cache.get(namespace, name)
        if item is None:
            return Done()
        wanted = item["metadata"]["labels"][LABEL]
        if mirrored(item)[:2] == (wanted, STEPS):
            return Done()
        for step in range(1, STEPS + 1):
            notes = {"mirrored": wanted, "step": str(step), "by": str(os.getpid())}
            await self._writer.patch(CONFIG_MAPS.item(name, namespace), {"metadata": {"annotations": notes}})
            await asyncio.sleep(STEP_SECONDS)
        await self._wait_shown(namespace, name, wanted)
        await self._events.record(item, "Normal", "Mirrored", f"the label says {wanted}")
        return Done()

    async def _wait_shown(self, namespace: str, name: str, wanted: str) -> None:
        """Until the watch has shown the last write: else the next pass would begin anew."""
        deadline = time.monotonic() + SHOWN_WITHIN
        while time.monotonic() < deadline:
            item = self._cache.get(namespace, name)
            if item is None or mirrored(item)[:2] == (wanted, STEPS):
                return
            await asyncio.sleep(0.02)


def build_loops(
    client: KubeClient,
    writer: GuardedClient,
    events: EventRecorder,
    settings: ReconcilerSettings,
    metrics: Metrics,
) -> tuple[Sequence[ObjectCache], Sequence[ControllerLoop]]:
    namespace = os.environ["MIRROR_NAMESPACE"]
    timing = WatchTiming(timedelta(seconds=settings.resync_seconds), timedelta(seconds=settings.watch_seconds))
    cache = ObjectCache(client, CONFIG_MAPS, label_selector=LABEL, timing=timing)

    def keys_of(item: Json) -> Iterable[Key]:
        if item["metadata"]["namespace"] == namespace:
            yield namespace, item["metadata"]["name"]

    controller = MirrorController(cache, writer, events)
    return [cache], [ControllerLoop(controller, [Trigger(cache, keys_of)], workers=4, metrics=metrics)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build_loops))
