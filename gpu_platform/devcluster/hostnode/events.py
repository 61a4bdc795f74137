"""Events on pods: what a developer sees in `kubectl describe`. Best effort; losing one harms nothing."""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Literal

from gpu_platform.devcluster.hostnode.names import NODE_NAME
from gpu_platform.devcluster.hostnode.times import format_time, utc_now
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.client import Json
from gpu_platform.kube.paths import EVENTS

QUEUE = 1_000
"""Events that wait to be written; beyond it they are dropped, because pods matter more."""

SAME_AGAIN = timedelta(minutes=1)
"""An event that says the same is left out for this long: a probe that fails every second is one story."""

MESSAGE_CHARACTERS = 1_024
"""The API's limit."""

log = logging.getLogger(__name__)


class EventRecorder:
    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._queue: asyncio.Queue[Json] = asyncio.Queue(QUEUE)
        self._said: dict[tuple[str, str, str], datetime] = {}

    def record(
        self, pod: Json, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str = ""
    ) -> None:
        now = utc_now()
        key = (pod["metadata"]["uid"], reason, f"{container}: {message}")
        self._said = {said: at for said, at in self._said.items() if now - at < SAME_AGAIN}
        if key in self._said or self._queue.full():
            return
        self._said[key] = now
        self._queue.put_nowait(build_event(pod, kind, reason, message, container, now))

    async def run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._client.create(EVENTS.collection(event["metadata"]["namespace"]), event)
            except Exception as error:
                log.warning("an event was lost: %s", error, exc_info=not isinstance(error, KubeError))


def build_event(pod: Json, kind: str, reason: str, message: str, container: str, now: datetime) -> Json:
    metadata = pod["metadata"]
    place = {"fieldPath": f"spec.containers{{{container}}}"} if container else {}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            **place,
        },
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_CHARACTERS],
        "source": {"component": "host-node", "host": NODE_NAME},
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
    }
