"""Kubernetes Events: what `kubectl describe` tells about an object. Losing one harms nothing.

The same words about the same object are one Event with a count: its name is a hash of them, so that a repeat,
also after a restart, finds it. The API server forgets an Event an hour after its last change.
"""

import hashlib
import logging
from datetime import datetime
from typing import Literal

from gpu_platform.clock import format_time, now_utc
from gpu_platform.domain.json_text import Json
from gpu_platform.kube.client import KubeClient
from gpu_platform.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from gpu_platform.kube.fencing import GuardedClient, NotLeaderError
from gpu_platform.kube.paths import EVENTS

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

MESSAGE_CHARACTERS = 1_024
"""The API's limit."""

NAME_CHARACTERS = 200
"""Of the object's name in the Event's, which may have 253 with the hash."""


class EventRecorder:
    def __init__(self, client: KubeClient | GuardedClient, component: str) -> None:
        self._client = client
        self._component = component

    async def record(self, regarding: Json, type_: EventType, reason: str, message: str) -> None:
        """Say this about the object. Never raises: what could not be said is logged."""
        event = build_event(regarding, type_, reason, message, self._component, now_utc())
        try:
            await self._write(event)
        except NotLeaderError:
            log.debug("event.left_to_the_leader", extra={"reason": reason})
        except KubeError as error:
            log.warning("event.lost", extra={"reason": reason, "said": event["message"], "error": str(error)})

    async def _write(self, event: Json) -> None:
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        try:
            await self._client.create(EVENTS.collection(namespace), event)
        except AlreadyExistsError:
            try:
                known = await self._client.get(EVENTS.item(name, namespace))
                again = {"count": int(known.get("count") or 1) + 1, "lastTimestamp": event["lastTimestamp"]}
                await self._client.patch(EVENTS.item(name, namespace), again)
            except NotFoundError:
                log.debug("event.expired", extra={"event": name})


def build_event(regarding: Json, type_: EventType, reason: str, message: str, component: str, now: datetime) -> Json:
    metadata = regarding["metadata"]
    message = message[:MESSAGE_CHARACTERS]
    words = "\0".join((str(metadata.get("uid")), component, type_, reason, message))
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    at = format_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:NAME_CHARACTERS]}.{digest}",
            # Events about cluster-scoped objects live here; the API accepts no other place for them.
            "namespace": metadata.get("namespace") or "default",
        },
        "involvedObject": {
            "apiVersion": regarding["apiVersion"],
            "kind": regarding["kind"],
            "name": metadata["name"],
            **{key: metadata[key] for key in ("namespace", "uid", "resourceVersion") if metadata.get(key)},
        },
        "type": type_,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
